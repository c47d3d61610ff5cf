/* Definitions in terms of the host's floating-point unit, and loops that hold a leaf against them.

   Defined before: BLOCK, the operands of one call, which stay in the first-level cache; OPERANDS(i),
   which fills the leaf's input arrays from x_block[i] and y_block[i]; CALL, the call of the leaf;
   WANTED(x, y), what it must give. */

static u32 x_block[BLOCK] ALIGNED, y_block[BLOCK] ALIGNED;

INLINE float as_float(u32 word) { float x; memcpy(&x, &word, 4); return x; }
INLINE u32 as_word(float x) { u32 word; memcpy(&word, &x, 4); return word; }
INLINE u32 fp32(float x) { return x != x ? 0x7FC00000u : as_word(x); }
INLINE float wide(u32 bf16) { return as_float(bf16 << 16); }

/* The nearer of the two BF16 numbers around a float, the even one when it lies in the middle. */
INLINE u32 to_bf16(float x) {
  u32 below = as_word(x) >> 16, above = below + 1;
  double low = as_float(below << 16), high = as_float(above << 16);
  if ((above & 0x7FFF) == 0x7F80) high = below >> 15 ? -0x1p128 : 0x1p128;
  double past = __builtin_fabs((double)x - low), left = __builtin_fabs(high - (double)x);
  u32 nearest = past < left ? below : past > left ? above : below & 1 ? above : below;
  if ((as_word(x) & 0x7FFFFFFF) == 0x7F800000) nearest = below;
  return x != x ? 0x7FC0 : nearest;
}

INLINE u32 extremum(u32 a, u32 b, int largest) {
  float x = wide(a), y = wide(b);
  u32 equal = largest ? a & b : a | b; /* of two zeros, +0 is the larger */
  u32 picked = x == y ? equal : (x > y) == largest ? a : b;
  return x != x || y != y ? 0x7FC0 : picked;
}

/* 1, with the first operands and both results in `found`, if the leaf is wrong in the blocks. */
FAR int wrong_in_block(u32 *found) {
  for (int i = 0; i < BLOCK; i++) { OPERANDS(i) }
  CALL;
  u32 wrong = 0;
  for (int i = 0; i < BLOCK; i++) wrong |= o_block[i] ^ (u32)WANTED(x_block[i], y_block[i]);
  if (!wrong) return 0;
  int i = 0;
  while (o_block[i] == (u32)WANTED(x_block[i], y_block[i])) i++;
  found[0] = x_block[i];
  found[1] = y_block[i];
  found[2] = o_block[i];
  found[3] = WANTED(x_block[i], y_block[i]);
  return 1;
}

/* x in [first, last), with every y of 16 bits. */
EXPORT int all_pairs(u32 first, u32 last, u32 *found) {
  for (u32 start = 0; start < 1 << 16; start += BLOCK) {
    for (int i = 0; i < BLOCK; i++) y_block[i] = start + i;
    for (u32 x = first; x < last; x++) {
      for (int i = 0; i < BLOCK; i++) x_block[i] = x;
      if (wrong_in_block(found)) return 1;
    }
  }
  return 0;
}

/* x in [first, last), multiples of the block; last may be 2^32. */
EXPORT int all_words(u64 first, u64 last, u32 *found) {
  for (u64 start = first; start < last; start += BLOCK) {
    for (int i = 0; i < BLOCK; i++) x_block[i] = (u32)start + i;
    if (wrong_in_block(found)) return 1;
  }
  return 0;
}

EXPORT int these_pairs(u64 count, const u32 *x, const u32 *y, u32 *found) {
  for (u64 start = 0; start < count; start += BLOCK) {
    for (int i = 0; i < BLOCK; i++) {
      u64 k = start + i < count ? start + i : count - 1;
      x_block[i] = x[k];
      y_block[i] = y[k];
    }
    if (wrong_in_block(found)) return 1;
  }
  return 0;
}

INLINE u32 scramble(u32 z) {
  z = (z ^ z >> 16) * 0x7FEB352Du;
  z = (z ^ z >> 15) * 0x846CA68Bu;
  return z ^ z >> 16;
}

/* FP32 pairs number first to last - 1 of a seed: every other one has exponents that are close. */
EXPORT int random_pairs(u64 first, u64 last, u64 seed, u32 *found) {
  u32 stream = scramble((u32)seed ^ scramble((u32)(seed >> 32)));
  for (u64 start = first; start < last; start += BLOCK) {
    u32 key = scramble((u32)(start / BLOCK) ^ stream);
    for (u32 i = 0; i < BLOCK; i++) {
      u32 x = scramble(key + 2 * i), y = scramble((key ^ 0x9E3779B9u) + 2 * i + 1);
      u32 near = ((x >> 23) + y % 61 - 30) & 0xFF;
      x_block[i] = x;
      y_block[i] = i & 1 ? (y & 0x807FFFFF) | near << 23 : y;
    }
    if (wrong_in_block(found)) return 1;
  }
  return 0;
}
