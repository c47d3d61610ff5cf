/* The clock loop with the memory device: what sim.simulation.Simulation and sim.hbm.HbmDevice do per cycle, for many
   cycles. Behind the accessors that sim.compiled.host generates (host_flags, host_present, ...). */
#include <time.h>
enum { HALTED = 1, STOPPED = 2, BUDGET = 3, LOG_FULL = 4, NEED_PAGES = 5, BAD_TAG = 6, LOOPS = 7, STUCK = 8 };

typedef struct { i64 cycle; u64 error; u64 data[8]; } due_t;

/* Mirrored field by field in sim.compiled.hoststate.HostState. */
typedef struct {
  i64 cycle, stop, budget;
  i64 idle, patience; /* clocks since anything happened, and how many are borne */
  i64 free_at, last_due, accepted;
  i64 latency, cycles_per_beat, capacity, extra_latency;
  u64 backpressure, seed;
  i64 size;
  due_t *due;
  i64 due_mask, due_head, due_count;
  i64 *page_keys;
  u8 **page_data;
  i64 page_mask;
  u8 **spare;
  i64 *spare_number;
  i64 spare_count, spare_used;
  i64 *faults;
  i64 fault_count;
  i64 *bytes_read, *bytes_written;
  const u8 *stages;
  i64 length;
  i32 *last_writer;
  i64 *wall, *completed, *read, *written, *busy, *order, *progress;
  i64 lanes;
  u64 *log;
  i64 log_size, log_used;
  i64 bad_kind, bad_pc, bad_stage;
  i64 timed, machine_ns;
  i64 sample_first, sample_stop, sample_parts; /* cycles; places of the storage */
  const i64 *sample_places; /* offset and bytes of each */
  u8 *samples;
  i64 sample_size, sample_room, sample_used; /* bytes of a sample; samples */
} host_t;

static i64 now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (i64)t.tv_sec * 1000000000 + t.tv_nsec;
}

static u64 device_random(const host_t *h, u64 event) {
  u64 z = h->seed * 0xD1342543DE82EF95ull + (event + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return (z ^ (z >> 31)) >> 32;
}

static u8 *device_page(host_t *h, i64 number, int make) {
  u64 at = (u64)number * 0x9E3779B97F4A7C15ull >> 20;
  for (;; at++) {
    i64 k = (i64)(at & (u64)h->page_mask);
    if (h->page_keys[k] == number) return h->page_data[k];
    if (h->page_keys[k] < 0) {
      if (!make) return 0;
      h->page_keys[k] = number;
      h->page_data[k] = h->spare[h->spare_used];
      h->spare_number[h->spare_used++] = number;
      return h->page_data[k];
    }
  }
}

static int device_ready(const host_t *h) {
  i64 under_way = h->due_count;
  if (under_way && h->due[h->due_head].cycle <= h->cycle) under_way--;
  if (h->cycle < h->free_at || under_way >= h->capacity) return 0;
  return !h->backpressure || device_random(h, 2 * (u64)h->cycle) >= h->backpressure;
}

static int tag_is_wrong(host_t *h, i64 kind, u64 pc, u64 stage) {
  if (pc < (u64)h->length && h->stages[pc] == stage) return 0;
  h->bad_kind = kind;
  h->bad_pc = (i64)pc;
  h->bad_stage = (i64)stage;
  return 1;
}

static int device_accept(host_t *h, u8 *M) {
  u64 beat = host_request_address(M);
  u32 write = host_request_write(M), stage = host_request_stage(M);
  u64 pc = host_request_pc(M);
  if (tag_is_wrong(h, 2, pc, stage)) return BAD_TAG;
  (write ? h->written : h->read)[pc] += 64;
  due_t *due = &h->due[(h->due_head + h->due_count) & h->due_mask];
  due->error = beat >= (u64)h->size / 64;
  for (i64 i = 0; i < h->fault_count; i++) due->error |= (u64)h->faults[2 * i] <= beat && beat < (u64)h->faults[2 * i + 1];
  memset(due->data, 0, 64);
  i64 number = (i64)(beat >> 10);
  u64 start = (beat & 1023) * 64;
  if (write) {
    h->bytes_written[stage] += 64;
    u64 strobe = host_request_strobe(M);
    if (!due->error && strobe) {
      u64 data[8];
      host_request_data(M, data);
      u8 *target = device_page(h, number, 1) + start;
      if (strobe == ~(u64)0) memcpy(target, data, 64);
      else for (int i = 0; i < 64; i++) if (strobe >> i & 1) target[i] = ((u8u *)data)[i];
    }
  } else {
    h->bytes_read[stage] += 64;
    u8 *page = due->error ? 0 : device_page(h, number, 0);
    if (page) memcpy(due->data, page + start, 64);
  }
  i64 latency = h->latency;
  if (h->extra_latency) latency += (i64)(device_random(h, 2 * (u64)h->accepted + 1) % (u64)(h->extra_latency + 1));
  h->last_due = h->cycle + latency > h->last_due + 1 ? h->cycle + latency : h->last_due + 1;
  due->cycle = h->last_due;
  h->due_count++;
  h->free_at = h->cycle + h->cycles_per_beat;
  h->accepted++;
  return 0;
}

/* sim.pc_accounts.PcAccounts: what every pc cost. `order` holds (pc, unit) of the unfinished, oldest first. */
static void bill(host_t *h, i64 front) {
  i64 count = h->progress[0], cycles = h->cycle + 1 - h->progress[1];
  if (cycles <= 0) return;
  h->progress[1] = h->cycle + 1;
  h->wall[count ? h->order[0] : front] += cycles;
  u64 seen = 0;
  for (i64 i = 0; i < count; i++) {
    u64 unit = (u64)h->order[2 * i + 1];
    if (!(seen >> unit & 1)) h->busy[(i64)unit * h->length + h->order[2 * i]] += cycles;
    seen |= (u64)1 << unit;
  }
}

/* What broken hardware may do besides (an unknown unit, more instructions than slots, completions from nowhere) is left
   out: lock step and the accounting identities report it, and nothing is written out of bounds. */
static void account_dispatch(host_t *h, i64 pc, i64 unit) {
  bill(h, pc);
  if (h->progress[0] >= ORDER_ROOM || unit >= UNITS) return;
  i64 *entry = h->order + 2 * h->progress[0]++;
  entry[0] = pc; entry[1] = unit;
}

static void account_completion(host_t *h, i64 pc, int immediate) {
  bill(h, pc);
  h->completed[pc]++;
  if (!h->progress[0]) return;
  i64 last = --h->progress[0], slot = 0;
  if (immediate) { /* the one just dispatched, which never was unfinished */
    i64 unit = h->order[2 * last + 1];
    while (slot < last && h->order[2 * slot + 1] != unit) slot++;
    if (slot == last) h->busy[unit * h->length + pc]++;
    return;
  }
  while (slot < last && h->order[2 * slot] != pc) slot++;
  memmove(h->order + 2 * slot, h->order + 2 * (slot + 1), (size_t)(16 * (last - slot)));
}

/* Events of this cycle: the tag check and the map of last writers, and the log if there is one. */
static int host_events(host_t *h, u8 *M, u64 flags) {
  if (flags & DISPATCH_BIT) {
    u64 e[DISPATCH_WORDS];
    host_dispatch(M, e);
    if (h->log) {
      u64u *r = h->log + h->log_used;
      r[0] = 0; r[1] = (u64)h->cycle; memcpy(r + 2, e, sizeof e);
      h->log_used += 2 + DISPATCH_WORDS;
    }
    if (tag_is_wrong(h, 0, e[0], e[2])) return BAD_TAG;
    account_dispatch(h, (i64)e[0], (i64)e[3]);
  }
  for (u64 left = flags & COMPLETION_MASK; left; left &= left - 1) {
    int port = __builtin_ctzll(left) - COMPLETION_SHIFT;
    u64 e[2];
    host_completion(M, port, e);
    if (h->log) {
      u64u *r = h->log + h->log_used;
      r[0] = 1 + 256 * (u64)port; r[1] = (u64)h->cycle; memcpy(r + 2, e, 16);
      h->log_used += 4;
    }
    if (tag_is_wrong(h, 1, e[0], e[1])) return BAD_TAG;
    account_completion(h, (i64)e[0], port == IMMEDIATE_PORT);
  }
  for (u64 left = flags & WRITE_MASK; left; left &= left - 1) {
    int port = __builtin_ctzll(left) - WRITE_SHIFT;
    if (!h->log && !(VRAM_PORTS >> port & 1)) continue;
    u64 e[3], lanes[LANE_WORDS];
    host_write(M, port, e, lanes);
    if (h->log) {
      u64u *r = h->log + h->log_used;
      r[0] = 2 + 256 * (u64)port; r[1] = (u64)h->cycle; memcpy(r + 2, e, 24);
      memcpy(r + 5, lanes, sizeof lanes);
      host_write_data(M, port, r + 5 + LANE_WORDS);
      h->log_used += 5 + LANE_WORDS + DATA_WORDS;
    }
    if (VRAM_PORTS >> port & 1) {
      i32 *row = h->last_writer + e[0] * (u64)h->lanes;
      for (i64 i = 0; i < h->lanes; i++) row[i] = lanes[i / 64] >> (i % 64) & 1 ? (i32)e[1] : row[i];
    }
  }
  for (u64 left = h->log ? flags & WORD_MASK : 0; left; left &= left - 1) {
    int port = __builtin_ctzll(left) - WORD_SHIFT;
    u64u *r = h->log + h->log_used;
    r[0] = 3 + 256 * (u64)port; r[1] = (u64)h->cycle;
    host_word(M, port, r + 2);
    h->log_used += 4;
  }
  return 0;
}

enum { BEAT_WORDS = 5 + 8 };

/* A write that the memory accepted in this cycle, to the log. */
static void log_beat(host_t *h, u8 *M) {
  u64u *r = h->log + h->log_used;
  r[0] = 4; r[1] = (u64)h->cycle; r[2] = host_request_pc(M);
  r[3] = host_request_address(M); r[4] = host_request_strobe(M);
  host_request_data(M, r + 5);
  h->log_used += BEAT_WORDS;
}

/* At most this many words of log are written in a cycle. */
#define LOG_ROOM (2 + DISPATCH_WORDS + 4 * COMPLETION_PORTS + (5 + LANE_WORDS + DATA_WORDS) * WRITE_PORTS + 4 * WORD_PORTS + BEAT_WORDS + 2)

/* What sim.compiled.samples wants of this cycle; the log says which cycle it is, and what came before. */
static void sample(host_t *h, const u8 *M) {
  u64u *r = h->log + h->log_used;
  r[0] = 5; r[1] = (u64)h->cycle;
  h->log_used += 2;
  u8 *to = h->samples + h->sample_size * h->sample_used++;
  for (i64 i = 0; i < h->sample_parts; i++) {
    i64 size = h->sample_places[2 * i + 1];
    memcpy(to, M + h->sample_places[2 * i], (size_t)size);
    to += size;
  }
}

EXPORT int plena_run(u8 *M, host_t *h) {
  for (;;) {
    if (h->log && h->log_used + LOG_ROOM > h->log_size) return LOG_FULL;
    if (h->sample_used == h->sample_room && h->sample_parts) return LOG_FULL;
    if (h->spare_used == h->spare_count) return NEED_PAGES;
    if (h->budget-- <= 0) return BUDGET;
    u32 answered = h->due_count && h->due[h->due_head].cycle <= h->cycle;
    if (answered) {
      host_present(M, h->due[h->due_head].data, (u32)h->due[h->due_head].error);
      h->due_head = (h->due_head + 1) & h->due_mask;
      h->due_count--;
    }
    u32 ready = (u32)device_ready(h);
    host_valid(M, answered);
    host_ready(M, ready);
    i64 since = h->timed ? now_ns() : 0;
    if (settle(M)) return LOOPS;
    if (h->timed) h->machine_ns += now_ns() - since;
    u64 flags = host_flags(M);
    if ((flags & STATE_MASK) == HALTED_STATE) return HALTED;
    h->idle++;
    if (answered || flags & (DISPATCH_BIT | COMPLETION_MASK | WRITE_MASK | WORD_MASK)) h->idle = 0;
    if (flags & REQUEST_BIT && ready) {
      h->idle = 0;
      if (device_accept(h, M)) return BAD_TAG;
      if (h->log && host_request_write(M)) log_beat(h, M);
    }
    if (flags & (DISPATCH_BIT | COMPLETION_MASK | WRITE_MASK | WORD_MASK)) {
      int bad = host_events(h, M, flags);
      if (bad) return bad;
    }
    if (h->sample_parts && h->cycle >= h->sample_first && h->cycle < h->sample_stop) sample(h, M);
    if (flags & COUNTING_BIT) h->cycle++;
    since = h->timed ? now_ns() : 0;
    edge(M);
    if (settle(M)) return LOOPS;
    if (h->timed) h->machine_ns += now_ns() - since;
    if (h->cycle >= h->stop) return STOPPED;
    if (h->idle > h->patience) return STUCK;
  }
}
