/* The one shared-memory layout between perceptd, its clients and its sensor providers.
 *
 * Plain C11, fixed width, little endian, no pointers. Every structure here may be written by another process:
 * a reader copies a field once, checks it, then uses the copy.
 * Times named *_ns are CLOCK_MONOTONIC nanoseconds (the hub clock) unless the name says sensor_ns.
 */
#ifndef PERCEPT_LAYOUT_H
#define PERCEPT_LAYOUT_H

#include <stdint.h>

#define PERCEPT_LAYOUT_VERSION 1u
#define PERCEPT_ARENA_MAGIC 0x41435250u  /* "PRCA" */
#define PERCEPT_FEED_MAGIC 0x46435250u   /* "PRCF" */
#define PERCEPT_PATCH_MAGIC 0x50435250u  /* "PRCP" */
#define PERCEPT_MEL_MAGIC 0x4d435250u    /* "PRCM" */
#define PERCEPT_MOTION_MAGIC 0x49435250u /* "PRCI" */

#define PERCEPT_MEL_BINS 80u
#define PERCEPT_ARENA_SLOTS_MAX 256u

/* ---- Arena: two descriptors = a header (one read-only memfd page) and the slots (memfd or dma-buf) ---- */

/* Slot i starts at i * slot_stride_bytes of the slots descriptor.
 * generation[i] is even while slot i may be read and odd while it is being written or is free; a reader compares it
 * with the generation in its message before and after the read: unequal = the lease was revoked, drop the data. */
struct percept_arena_header {
    uint32_t magic;
    uint32_t version;
    uint32_t slot_count;
    uint32_t reserved;
    uint64_t reserved1;
    uint64_t slot_stride_bytes; /* multiple of the page size */
    uint64_t slot_bytes;        /* usable bytes of one slot */
    uint64_t generation[PERCEPT_ARENA_SLOTS_MAX];
};

/* ---- Camera slot: an NV12 frame: luma rows, then interleaved chroma rows, both with stride_bytes ---- */
/* ---- Audio slot: one capture block ---- */
struct percept_audio_block {
    uint32_t rate_hz;               /* of the original */
    uint32_t channel_count;         /* of the original */
    uint32_t frame_count;           /* original frames in this block */
    uint32_t mono_count;            /* samples of the 16 kHz mono signal in this block */
    uint64_t first_frame;           /* index of the first original frame since the start of the stream */
    uint64_t first_mono;            /* index of the first 16 kHz sample since the start of the stream */
    uint32_t original_offset_bytes; /* from the slot's start; int16 interleaved */
    uint32_t mono_offset_bytes;     /* from the slot's start; int16 */
};

/* ---- Patch block (camera tokens of one window) ---- */
enum { PERCEPT_PATCH_CHANGED = 1u, PERCEPT_PATCH_REFRESHED = 2u, PERCEPT_PATCH_INTRA = 4u };

struct percept_patch {
    uint16_t column; /* in patches */
    uint16_t row;
    uint16_t reason;     /* PERCEPT_PATCH_* */
    uint16_t age_frames; /* frames since this patch was last encoded */
    float distance;      /* ||p - ref||_2 in grey levels; 0 for the first frame */
};

/* Followed by patch_count percept_patch. Pixels stay in the frame's slot: a patch is patch_px x patch_px luma
 * pixels at (column * patch_px, row * patch_px). Patches not listed equal their last encoded value within
 * threshold (grey levels, L2). */
struct percept_patch_block {
    uint32_t magic;
    uint32_t patch_count;
    uint64_t window_id;
    uint32_t width_px, height_px;
    uint32_t patch_px;
    uint32_t column_count, row_count;
    uint32_t intra;  /* 1 = every patch is listed */
    float threshold; /* largest tau in force */
    uint32_t reserved;
};

/* ---- Mel block: followed by slice_count slices ---- */
struct percept_mel_slice {
    int64_t centre_ns;    /* first sample + 12.5 ms */
    uint64_t slice_index; /* since the start of the stream */
    float bins[PERCEPT_MEL_BINS];
};
enum { PERCEPT_MEL_KALDI = 1u, PERCEPT_MEL_WHISPER_STREAM = 2u };
struct percept_mel_block {
    uint32_t magic;
    uint32_t slice_count;
    uint64_t window_id;
    uint32_t profile; /* PERCEPT_MEL_* */
    uint32_t bin_count;
    float level_dbfs;       /* RMS of the window's sound; -200 = digital silence */
    uint32_t clipped_count; /* samples at full scale */
};

/* ---- Motion block: followed by row_count percept_imu_row, then feature_count percept_motion_feature ---- */
enum { PERCEPT_IMU_NEIGHBOUR = 1u, PERCEPT_IMU_ACCEL = 2u, PERCEPT_IMU_GYRO = 4u, PERCEPT_IMU_SATURATED = 8u };
struct percept_imu_row {
    int64_t time_ns;
    int64_t sensor_ns;
    uint64_t row_index; /* since the start of the stream */
    float accel_mps2[3];
    float gyro_radps[3];
    uint32_t flags; /* PERCEPT_IMU_*; NEIGHBOUR: owned by another window, here for interpolation */
    uint32_t reserved;
};
struct percept_motion_feature { /* one per 10 ms of the window */
    int64_t time_ns;
    float gravity_mps2[3]; /* low-passed acceleration */
    float linear_mps2[3];  /* acceleration minus gravity */
    float angular_rate_radps[3];
    float energy_mps2; /* RMS of the linear part over the last second */
};
struct percept_motion_block {
    uint32_t magic;
    uint32_t row_count;
    uint64_t window_id;
    uint32_t feature_count;
    uint32_t state;        /* 0 unknown, 1 still, 2 walk, 3 turn */
    float cadence_hz;      /* NaN = unknown */
    float rotation_rad[3]; /* rotation vector over the window */
};

/* ---- Feed: what a sensor provider process shares with the daemon ---- */
enum { PERCEPT_STREAM_CAMERA = 1u, PERCEPT_STREAM_AUDIO = 2u, PERCEPT_STREAM_IMU = 3u };
/* GAP: samples before this one were lost. END: the stream is over; with DAMAGED, before its time. MARK: no sample, but
 * the promise that none of the stream before hub_ns will come. END and MARK need stream, run and hub_ns alone. */
enum { PERCEPT_FEED_GAP = 1u, PERCEPT_FEED_END = 2u, PERCEPT_FEED_MARK = 4u, PERCEPT_FEED_DAMAGED = 8u };

#define PERCEPT_FEED_RING_RECORDS 1024u
#define PERCEPT_FEED_FREE_SLOTS 256u

struct percept_feed_record { /* 96 bytes */
    uint32_t stream;         /* PERCEPT_STREAM_* */
    uint32_t flags;          /* PERCEPT_FEED_* */
    uint32_t slot_index;     /* camera, audio */
    uint32_t imu_flags;      /* IMU: PERCEPT_IMU_ACCEL | _GYRO | _SATURATED */
    int64_t sensor_ns;       /* the device's own stamp of the first sample (camera: exposure midpoint) */
    int64_t hub_ns;          /* the stamp on CLOCK_MONOTONIC that pairs with sensor_ns */
    uint64_t sequence;       /* per stream, from 0; a jump is a gap */
    uint64_t exposure_ns;    /* camera; 0 = unknown */
    float accel_mps2[3];
    float gyro_radps[3];
    uint32_t bytes_used; /* camera, audio: bytes written to the slot */
    uint32_t run;        /* Start.run; records of another run are void */
    uint32_t reserved[4];
};

/* Provider writes records and record_tail; daemon writes free slots and their tails. Indices only grow;
 * position = index modulo the ring's size. A slot that was handed out stays the provider's until a record names it,
 * from run to run. A byte on the doorbell socket wakes the other side. */
struct percept_feed {
    uint32_t magic;
    uint32_t version;
    uint64_t reserved0[7];
    uint64_t record_tail; /* provider */
    uint64_t reserved1[7];
    uint64_t record_head; /* daemon */
    uint64_t reserved2[7];
    uint64_t free_tail[2]; /* daemon: [0] camera, [1] audio */
    uint64_t reserved3[6];
    uint64_t free_head[2]; /* provider */
    uint64_t reserved4[6];
    struct percept_feed_record records[PERCEPT_FEED_RING_RECORDS];
    uint32_t free_slots[2][PERCEPT_FEED_FREE_SLOTS];
};

/* ---- Job ring: the Submit/Completion pairs of a channel in shared memory ---- */
#define PERCEPT_JOB_RING_MAGIC 0x4a435250u /* "PRCJ" */
#define PERCEPT_JOB_RING_ENTRIES 256u      /* of either direction; a power of two */
#define PERCEPT_JOB_BINDINGS_MAX 6u        /* inputs and outputs; a job with more goes through the channel */

struct percept_job_binding {
    uint32_t buffer_id; /* from RegisterBuffers */
    uint32_t reserved;
    uint64_t offset_bytes;
    uint64_t size_bytes;
};

/* Entry at position p (they count from 0) lies in slot p modulo the ring's size and is whole once sequence is p + 1. */
struct percept_job_entry { /* 192 bytes; the first binding shares the header's cache line */
    uint64_t sequence;
    uint64_t job_id;     /* the client's; not in flight twice */
    uint64_t program_id; /* 0 with no binding: an empty job, completed where it is received */
    int64_t deadline_ns; /* 0: none */
    uint8_t job_class;   /* as JobClass of the channel */
    uint8_t input_count; /* bindings[0 .. input_count) are read, the output_count after them are written */
    uint8_t output_count;
    uint8_t flags; /* 0 */
    uint32_t reserved;
    struct percept_job_binding bindings[PERCEPT_JOB_BINDINGS_MAX];
    uint64_t reserved1;
};

/* How a job ended. */
enum {
    PERCEPT_JOB_DONE = 1u,
    PERCEPT_JOB_CANCELLED = 2u,
    PERCEPT_JOB_DEPENDENCY_LOST = 3u, /* an in-fence failed */
    PERCEPT_JOB_DEVICE_LOST = 4u,     /* and no other device could run it */
    PERCEPT_JOB_DROPPED = 5u,         /* whole, in overload or past its deadline */
    PERCEPT_JOB_INVALID = 6u,
    PERCEPT_JOB_NOT_FINITE = 7u,
    PERCEPT_JOB_NO_MEMORY = 8u,
    PERCEPT_JOB_UNSUPPORTED = 9u,
    PERCEPT_JOB_REFUSED = 10u /* admission or quota; try later */
};

struct percept_job_completion { /* 64 bytes */
    uint64_t sequence;
    uint64_t job_id;
    uint32_t status; /* PERCEPT_JOB_* */
    uint32_t reserved;
    int64_t started_ns; /* 0: never started */
    int64_t finished_ns;
    uint64_t reserved1[3];
};

/* Heads only grow and are read when a ring looks full. A side that is about to sleep sets its word to 1 and looks once
 * more; who writes an entry then finds the word, clears it and rings: the client an eventfd, the daemon a pipe. */
struct percept_job_ring {
    uint32_t magic;
    uint32_t version;
    uint64_t reserved0[7];
    uint64_t submission_head; /* daemon */
    uint64_t reserved1[7];
    uint64_t completion_head; /* client */
    uint64_t reserved2[7];
    uint32_t daemon_sleeps;
    uint32_t reserved3[15];
    uint32_t client_sleeps;
    uint32_t reserved4[15];
    struct percept_job_entry submissions[PERCEPT_JOB_RING_ENTRIES];
    struct percept_job_completion completions[PERCEPT_JOB_RING_ENTRIES];
};

#ifdef __cplusplus
#define PERCEPT_STATIC_ASSERT static_assert
#else
#define PERCEPT_STATIC_ASSERT _Static_assert
#endif
PERCEPT_STATIC_ASSERT(sizeof(struct percept_arena_header) == 40 + 8 * PERCEPT_ARENA_SLOTS_MAX, "arena header");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_audio_block) == 40, "audio block");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_patch) == 12, "patch");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_patch_block) == 48, "patch block");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_mel_slice) == 336, "mel slice");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_mel_block) == 32, "mel block");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_imu_row) == 56, "imu row");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_motion_feature) == 48, "motion feature");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_motion_block) == 40, "motion block");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_feed_record) == 96, "feed record");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_job_entry) == 192, "job entry");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_job_completion) == 64, "job completion");
PERCEPT_STATIC_ASSERT(sizeof(struct percept_job_ring) == 320 + 256 * PERCEPT_JOB_RING_ENTRIES, "job ring");

#endif
