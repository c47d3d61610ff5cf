/* What the generated C builds on. Little-endian machines; wide values are words of 64 bits, clean above their width. */
#include <stdint.h>
#include <string.h>
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled engine needs a little-endian machine"
#endif
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t i32;
typedef int64_t i64;
typedef u8 u8u __attribute__((may_alias));
typedef u16 u16u __attribute__((aligned(1), may_alias));
typedef u32 u32u __attribute__((aligned(1), may_alias));
typedef u64 u64u __attribute__((aligned(1), may_alias));
#define L8(o) ((u32) * (const u8u *)(M + (o)))
#define L16(o) ((u32) * (const u16u *)(M + (o)))
#define L32(o) (*(const u32u *)(M + (o)))
#define L64(o) (*(const u64u *)(M + (o)))
#define S8(o) (*(u8u *)(M + (o)))
#define S16(o) (*(u16u *)(M + (o)))
#define S32(o) (*(u32u *)(M + (o)))
#define S64(o) (*(u64u *)(M + (o)))
#define P64(o) ((u64u *)(M + (o)))
#define INLINE static inline __attribute__((always_inline, unused))
#define FAR static __attribute__((noinline, unused))

INLINE void w_copy(u64u *d, const u64u *a, int n) { memcpy(d, a, 8 * n); }
INLINE void w_zero(u64u *d, int n) { memset(d, 0, 8 * n); }
INLINE void w_fill(u64u *d, u64 x, int n) { for (int i = 0; i < n; i++) d[i] = x; }
INLINE void w_and(u64u *d, const u64u *a, const u64u *b, int n) { for (int i = 0; i < n; i++) d[i] = a[i] & b[i]; }
INLINE void w_or(u64u *d, const u64u *a, const u64u *b, int n) { for (int i = 0; i < n; i++) d[i] = a[i] | b[i]; }
INLINE void w_xor(u64u *d, const u64u *a, const u64u *b, int n) { for (int i = 0; i < n; i++) d[i] = a[i] ^ b[i]; }
INLINE void w_not(u64u *d, const u64u *a, int n) { for (int i = 0; i < n; i++) d[i] = ~a[i]; }
FAR void w_add(u64u *d, const u64u *a, const u64u *b, int n) {
  u64 carry = 0;
  for (int i = 0; i < n; i++) { u64 s = a[i] + carry; carry = s < carry; d[i] = s + b[i]; carry += d[i] < s; }
}
FAR void w_sub(u64u *d, const u64u *a, const u64u *b, int n) {
  u64 borrow = 0;
  for (int i = 0; i < n; i++) { u64 x = a[i], y = b[i], s = x - y - borrow; borrow = x < y || (x == y && borrow); d[i] = s; }
}
FAR void w_neg(u64u *d, const u64u *a, int n) {
  u64 carry = 1;
  for (int i = 0; i < n; i++) { u64 s = ~a[i] + carry; carry = carry && !s; d[i] = s; }
}
FAR void w_mul(u64u *d, const u64u *a, const u64u *b, int n) {
  w_zero(d, n);
  for (int i = 0; i < n; i++) {
    u64 carry = 0;
    for (int j = 0; i + j < n; j++) {
      unsigned __int128 p = (unsigned __int128)a[i] * b[j] + d[i + j] + carry;
      d[i + j] = (u64)p;
      carry = (u64)(p >> 64);
    }
  }
}
INLINE u32 w_eq(const u64u *a, const u64u *b, int n) { u64 x = 0; for (int i = 0; i < n; i++) x |= a[i] ^ b[i]; return x == 0; }
FAR u32 w_ult(const u64u *a, const u64u *b, int n) {
  for (int i = n - 1; i >= 0; i--) if (a[i] != b[i]) return a[i] < b[i];
  return 0;
}
FAR u32 w_slt(const u64u *a, const u64u *b, int n, int w) {
  u32 sa = a[n - 1] >> ((w - 1) & 63) & 1, sb = b[n - 1] >> ((w - 1) & 63) & 1;
  return sa != sb ? sa : w_ult(a, b, n);
}
INLINE u32 w_any(const u64u *a, int n) { u64 x = 0; for (int i = 0; i < n; i++) x |= a[i]; return x != 0; }
FAR u32 w_all(const u64u *a, int n, int w) {
  for (int i = 0; i < w / 64; i++) if (~a[i]) return 0;
  return w % 64 == 0 || a[n - 1] == ((u64)1 << (w % 64)) - 1;
}
FAR u32 w_parity(const u64u *a, int n) { u64 x = 0; for (int i = 0; i < n; i++) x ^= a[i]; return (u32)__builtin_parityll(x); }
/* Up to 64 bits from bit `at` on; 0 beyond the end. */
INLINE u64 w_bits(const u64u *a, int n, u64 at) {
  u64 k = at >> 6;
  u32 s = at & 63;
  u64 low = k < (u64)n ? a[k] : 0, high = k + 1 < (u64)n ? a[k + 1] : 0;
  return s ? low >> s | high << (64 - s) : low;
}
INLINE void w_lshr(u64u *d, int nd, const u64u *a, int n, u64 at) {
  u64 k = at >> 6;
  u32 s = at & 63;
  if (k + nd < (u64)n) {
    if (s) for (int i = 0; i < nd; i++) d[i] = a[k + i] >> s | a[k + i + 1] << (64 - s);
    else for (int i = 0; i < nd; i++) d[i] = a[k + i];
  } else {
    for (int i = 0; i < nd; i++) d[i] = w_bits(a, n, at + 64 * (u64)i);
  }
}
FAR void w_shl(u64u *d, int nd, const u64u *a, int n, u64 at) {
  u64 k = at >> 6;
  u32 s = at & 63;
  for (int i = nd - 1; i >= 0; i--) {
    u64 j = (u64)i - k;
    u64 high = (u64)i >= k && j < (u64)n ? a[j] : 0, low = (u64)i > k && j - 1 < (u64)n ? a[j - 1] : 0;
    d[i] = s ? high << s | low >> (64 - s) : high;
  }
}
/* d (nd words) = a of w bits with its sign extended. */
FAR void w_sext(u64u *d, int nd, const u64u *a, int w) {
  int n = (w + 63) / 64;
  u64 fill = -(a[n - 1] >> ((w - 1) & 63) & 1);
  for (int i = 0; i < nd; i++) d[i] = i < n ? a[i] : fill;
  if (w & 63) d[n - 1] |= fill << (w & 63);
}
FAR void w_ashr(u64u *d, const u64u *a, int n, int w, u64 at) {
  u64 x[n];
  w_sext(x, n, a, w);
  u64 fill = -(x[n - 1] >> 63), k = at >> 6;
  u32 s = at & 63;
  for (int i = 0; i < n; i++) {
    u64 low = (u64)i + k < (u64)n ? x[i + k] : fill, high = (u64)i + k + 1 < (u64)n ? x[i + k + 1] : fill;
    d[i] = s ? low >> s | high << (64 - s) : low;
  }
}
/* d |= a of w bits at bit `at`; d is 0 there. */
FAR void w_put(u64u *d, int at, const u64u *a, int w) {
  int k = at >> 6, s = at & 63, n = (w + 63) / 64;
  for (int i = 0; i < n; i++) {
    d[k + i] |= a[i] << s;
    if (s && 64 * i + 64 - s < w) d[k + i + 1] |= a[i] >> (64 - s);
  }
}
INLINE void w_set(u64u *d, int at, u64 x, int w) {
  int k = at >> 6, s = at & 63;
  u64 m = w == 64 ? ~(u64)0 : ((u64)1 << w) - 1;
  d[k] = (d[k] & ~(m << s)) | x << s;
  if (s + w > 64) d[k + 1] = (d[k + 1] & ~(m >> (64 - s))) | x >> (64 - s);
}
FAR void w_replace(u64u *d, int at, const u64u *a, int w) {
  for (int i = 0; i < w; i += 64) w_set(d, at + i, a[i >> 6], w - i < 64 ? w - i : 64);
}
/* w bits of a, to the same place in d */
FAR void w_move(u64u *d, const u64u *a, int at, int w) {
  for (int i = 0; i < w; i += 64) {
    int count = w - i < 64 ? w - i : 64, k = (at + i) >> 6, s = (at + i) & 63;
    u64 x = a[k] >> s;
    if (s + count > 64) x |= a[k + 1] << (64 - s);
    if (count < 64) x &= ((u64)1 << count) - 1;
    w_set(d, at + i, x, count);
  }
}
FAR void w_deposit(u64u *d, int whole, u64 at, const u64u *a, int w) {
  for (int i = 0; i < w; i += 64) {
    if (at >= (u64)whole || at + i >= (u64)whole) return;
    u64 room = (u64)whole - at - i;
    int count = w - i < 64 ? w - i : 64;
    if ((u64)count > room) count = (int)room;
    u64 x = a[i >> 6];
    if (count < 64) x &= ((u64)1 << count) - 1;
    w_set(d, (int)(at + i), x, count);
  }
}
/* Leading zeros of a number that is not 0, in a form that becomes SIMD. */
INLINE u32 p_leading(u32 x) {
#ifdef __AVX512CD__
  return (u32)__builtin_clz(x | 1);
#else
  u32 n = 0, s;
  s = (u32)(x >> 16 == 0) << 4; x <<= s; n += s;
  s = (u32)(x >> 24 == 0) << 3; x <<= s; n += s;
  s = (u32)(x >> 28 == 0) << 2; x <<= s; n += s;
  s = (u32)(x >> 30 == 0) << 1; x <<= s; n += s;
  return n + (x >> 31 == 0);
#endif
}
/* Division that rounds down; by zero gives 0. */
INLINE i64 p_sdiv(i64 a, i64 b) {
  if (b == 0) return 0;
  if (b == -1) return (i64)(0 - (u64)a);
  i64 q = a / b;
  return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}
INLINE i64 p_smod(i64 a, i64 b) {
  if (b == 0 || b == -1) return 0;
  i64 r = a % b;
  return r && (r < 0) != (b < 0) ? r + b : r;
}
