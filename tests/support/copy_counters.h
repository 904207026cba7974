/* The file that copy_audit keeps: eight counters, native byte order. Owned by the audited process, read by the test. */
#ifndef COPY_COUNTERS_H
#define COPY_COUNTERS_H

#include <stdint.h>

#define COPY_COUNTERS_MAGIC 0x54494455415950u

struct copy_counters {
    uint64_t magic;
    uint64_t mapped_bytes;     /* of the watched mapping in this process at most; 0 = it was never there */
    uint64_t copied_out_bytes; /* memcpy and its kin, source in the mapping */
    uint64_t copied_in_bytes;  /* the same with the destination in the mapping, by any thread but the filler */
    uint64_t filled_bytes;     /* the same by the filler */
    uint64_t sent_bytes;       /* write, send and their kin from the mapping */
    uint64_t received_bytes;   /* read, recv and their kin into the mapping */
    uint64_t reserved;
};

#endif
