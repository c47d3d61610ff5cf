/* Between the engine and a Verilated machine: construction, addresses, evaluation, clock. Generated before this:
   Vplena.h, ADDRESSES (an array of address_t), PORT(n) (address of a port of the top by number). */
#include "verilated.h"
#include "verilated_syms.h"
#include <stdlib.h>
#define EXPORT extern "C" __attribute__((visibility("default")))

void Vplena___024root___eval_settle(Vplena___024root *);

/* Verilator's state is behind the model, so that this is all that the clock loop passes around. */
typedef struct {
  VerilatedContext *context;
  Vplena *top;
  int settled;
  u8 *at[ADDRESS_COUNT];
} handle_t;

#define HANDLE ((handle_t *)M)
#define SETTLED (HANDLE->settled)
#define AT(n) (HANDLE->at[n])

static inline u64 words_at(const u32u *w, int start, int width) {
  w += start / 32;
  int shift = start % 32, left = shift + width;
  u64 x = (u64)w[0] >> shift;
  if (left > 32) x |= (u64)w[1] << (32 - shift);
  if (left > 64) x |= (u64)w[2] << (64 - shift);
  return width < 64 ? x & (((u64)1 << width) - 1) : x;
}

static void discard(u8 *M) {
  if (!HANDLE->top) return;
  HANDLE->top->final();
  delete HANDLE->top;
  delete HANDLE->context;
  HANDLE->top = 0;
}

/* A new machine in its initial state, settled with all inputs zero; returns the number of the first address that is
   not there, or -1. */
EXPORT int plena_reset(u8 *M) {
  discard(M);
  HANDLE->context = new VerilatedContext;
  Vplena *top = HANDLE->top = new Vplena{HANDLE->context, "TOP"};
  for (int i = 0; i < ADDRESS_COUNT; i++) {
    const address_t *a = &ADDRESSES[i];
    if (a->port >= 0) { HANDLE->at[i] = (u8 *)port_address(top, a->port); continue; }
    const VerilatedScope *scope = HANDLE->context->scopeFind(a->scope);
    VerilatedVar *var = scope ? scope->varFind(a->name) : 0;
    if (!var) return i;
    HANDLE->at[i] = (u8 *)var->datap();
  }
  top->clk = 0;
  top->rst = 0;
  top->eval();
  SETTLED = 1;
  return -1;
}

EXPORT void *plena_new(void) { return calloc(1, sizeof(handle_t)); }
EXPORT void plena_delete(u8 *M) { discard(M); free(M); }
EXPORT void *plena_address(u8 *M, int number) { return AT(number); }

/* After something inside of the machine was overwritten: combinational logic does not follow by itself. */
EXPORT void plena_refresh(u8 *M) { Vplena___024root___eval_settle(HANDLE->top->rootp); SETTLED = 0; }

static int settle(u8 *M) {
  if (SETTLED) return 0;
  HANDLE->top->clk = 0;
  HANDLE->top->eval();
  SETTLED = 1;
  return 0;
}

static void edge(u8 *M) {
  if (HANDLE->top->clk) { HANDLE->top->clk = 0; HANDLE->top->eval(); }
  HANDLE->top->clk = 1;
  HANDLE->top->eval();
}

EXPORT void plena_unsettle(u8 *M) { SETTLED = 0; }
EXPORT void plena_settle(u8 *M) { settle(M); }
EXPORT void plena_step(u8 *M, i64 cycles) { settle(M); while (cycles-- > 0) edge(M); }
