/* The C interface of libpercept: synchronized windows of perceptd's sensors, read in place from shared memory, and the
 * answers of its models.
 * Owns a percept_client and every mapping behind it; hands out read-only views of windows.
 * Never copies sensor data, never writes shared memory, never starts a thread.
 *
 * A client belongs to one thread at a time. Structures only grow at their end. Times named *_ns are CLOCK_MONOTONIC
 * nanoseconds (the hub clock).
 */
#ifndef PERCEPT_PERCEPT_H
#define PERCEPT_PERCEPT_H

#include <stdint.h>

#include "percept_layout.h"

#if defined(__GNUC__)
#define PERCEPT_API __attribute__((visibility("default")))
#else
#define PERCEPT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PERCEPT_DEFAULT_SOCKET "/run/perceptd/channel.sock"

/* Bits of percept_subscribe's sensors. */
enum { PERCEPT_CAMERA = 1u, PERCEPT_MICROPHONE = 2u, PERCEPT_IMU = 4u };

/* 0 = done, positive = nothing wrong but no window, negative = an error that percept_last_error explains. */
enum {
    PERCEPT_OK = 0,
    PERCEPT_TIMEOUT = 1,       /* nothing arrived in time */
    PERCEPT_END_OF_STREAM = 2, /* a recording is over: no window follows */
    PERCEPT_ERROR_INVALID_ARGUMENT = -1,
    PERCEPT_ERROR_NOT_RUNNING = -2,      /* nobody listens on the socket */
    PERCEPT_ERROR_NOT_AUTHORIZED = -3,   /* the socket, or a sensor, is not for this user */
    PERCEPT_ERROR_VERSION_MISMATCH = -4, /* daemon and library speak no common protocol version */
    PERCEPT_ERROR_DISCONNECTED = -5,     /* the daemon closed the channel */
    PERCEPT_ERROR_PROTOCOL = -6,         /* the daemon sent what the contract forbids: the client is dead */
    PERCEPT_ERROR_REFUSED = -7,          /* the daemon said no for another reason: quota, busy, no such sensor */
    PERCEPT_ERROR_SYSTEM = -8            /* a system call failed */
};

/* Bits of percept_window.flags. */
enum {
    PERCEPT_WINDOW_MISSING_VIDEO = 1u,
    PERCEPT_WINDOW_PARTIAL_AUDIO = 2u,
    PERCEPT_WINDOW_IMU_GAP = 4u,
    PERCEPT_WINDOW_EPOCH = 8u
};

/* percept_notice.kind. */
enum {
    PERCEPT_NOTICE_SENSOR_LOST = 1u,
    PERCEPT_NOTICE_SENSOR_RESTORED = 2u,
    PERCEPT_NOTICE_GRANT_REVOKED = 3u,
    PERCEPT_NOTICE_END_OF_STREAM = 4u,
    PERCEPT_NOTICE_SHUTTING_DOWN = 5u,
    PERCEPT_NOTICE_SESSION_END = 6u
};

/* percept_part.finish: why an answer ended. */
enum {
    PERCEPT_FINISH_NONE = 0u, /* it goes on */
    PERCEPT_FINISH_STOP_TOKEN = 1u,
    PERCEPT_FINISH_STOP_STRING = 2u,
    PERCEPT_FINISH_TOKENS_MAX = 3u,
    PERCEPT_FINISH_CANCELLED = 4u,
    PERCEPT_FINISH_FAILED = 5u,
    PERCEPT_FINISH_INTERRUPTED = 6u /* percept_resume goes on with it later */
};

/* percept_part.headroom_level. */
enum {
    PERCEPT_HEADROOM_NORMAL = 0u,
    PERCEPT_HEADROOM_SOFT = 1u, /* 75 % of the context are used */
    PERCEPT_HEADROOM_HARD = 2u  /* 90 % */
};

typedef struct percept_client percept_client;

/* An NV12 frame: height_px luma rows, then (height_px + 1) / 2 rows of interleaved chroma. luma NULL = no frame. */
typedef struct percept_frame {
    const uint8_t* luma;
    const uint8_t* chroma;
    uint32_t width_px;
    uint32_t height_px;
    uint32_t stride_bytes;
    uint32_t reserved;
    int64_t exposure_midpoint_ns;
    int64_t sensor_ns;
    uint64_t sequence;
} percept_frame;

/* Windows that did not reach this client since percept_subscribe; the counts only grow. */
typedef struct percept_drops {
    uint64_t lost_unread_count;
    uint64_t lost_unreleased_count;
    uint64_t revoked_count;
    uint64_t lost_upstream_count;
} percept_drops;

/* One block of original sound. Neighbouring windows share the blocks on their border. */
typedef struct percept_sound {
    int64_t first_frame_ns;           /* hub time of the block's first original frame */
    struct percept_audio_block block; /* a checked copy */
    const int16_t* original;          /* block.frame_count * block.channel_count samples, interleaved */
    const int16_t* mono;              /* block.mono_count samples at 16 kHz */
} percept_sound;

/* A window [t0_ns, t1_ns). The *_block members are checked copies; the arrays lie in read-only shared memory and hold
 * as many elements as the block says. An array is NULL, and its block zero, when the window does not hold that stream.
 * The daemon may take a window back at any time: what was read counts only if percept_window_is_valid says so after. */
typedef struct percept_window {
    uint64_t id;
    int64_t t0_ns;
    int64_t t1_ns;
    uint32_t flags;
    uint32_t close_reason; /* 1 complete, 2 deadline, 3 clock epoch, 4 end of stream */
    uint64_t clock_epoch;
    percept_drops drops;
    percept_frame frame;
    struct percept_patch_block patch_block;
    const struct percept_patch* patches;
    struct percept_mel_block mel_block;
    const struct percept_mel_slice* mel_slices;
    struct percept_motion_block motion_block;
    const struct percept_imu_row* imu_rows;
    const struct percept_motion_feature* motion_features;
    const percept_sound* sounds; /* the sound blocks that overlap the window, in order; NULL = none */
    uint32_t sound_count;
    uint32_t reserved;
} percept_window;

/* What session and daemon have done, as the last notice told; all zero before the first one. Durations are from a
 * window's closing to its tokens. */
typedef struct percept_statistics {
    uint64_t windows_sent_count;
    uint64_t windows_released_count;
    percept_drops drops;
    uint64_t windows_closed_count;
    uint64_t hot_path_allocations_count; /* heap allocations on the daemon's data threads */
    uint64_t camera_copied_bytes;        /* copied in user space after the slot was filled */
    uint64_t gate_reference_bytes;       /* luma of encoded patches, remembered by the patch gate */
    double window_to_tokens_p50_us;
    double window_to_tokens_p99_us;
    double window_to_tokens_max_us;
    uint64_t mel_slices_lost_count;
    uint64_t imu_rows_lost_count;
    uint64_t invalid_samples_count; /* that a sensor or provider should not have sent */
} percept_statistics;

/* The newest word of the daemon about the session. count 0 = none so far; it grows by 1 per notice. */
typedef struct percept_notice {
    uint64_t count;
    const char* text; /* valid until the next call on the client */
    uint32_t kind;
    uint32_t reserved;
} percept_notice;

/* What to ask a model. Start from PERCEPT_QUESTION_INIT; a member that is 0 has its default. */
typedef struct percept_question {
    uint64_t struct_bytes;    /* sizeof(percept_question): how much of it the caller knows */
    const char* model;        /* a name of the daemon's model folders; NULL with `thread`: the dialogue's */
    const char* version;      /* NULL: the newest */
    const char* prompt;       /* the user's words, UTF-8, not empty */
    uint64_t thread;          /* percept_answer.thread of an earlier answer: the dialogue goes on; 0: a new one */
    uint64_t seed;            /* counts only with has_seed */
    uint32_t has_seed;        /* 0: the daemon draws one */
    uint32_t tokens_max;      /* 0: 256, or what the context has left */
    float temperature;        /* 0: always the likeliest token */
    uint32_t top_k;           /* 0: all */
    float top_p;              /* 0: all */
    float min_p;              /* 0: all */
    float repetition_penalty; /* 0: none */
    uint32_t stop_count;      /* of `stops` */
    const char* const* stops; /* UTF-8 strings that end the answer */
} percept_question;

#define PERCEPT_QUESTION_INIT \
    { sizeof(percept_question), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* An answer that has begun. Its id is below 2^53 and good for percept_resume also after a restart of client or daemon.
 */
typedef struct percept_answer {
    uint64_t generation_id;
    uint64_t thread;
    uint64_t next_number; /* of the first token that follows */
    uint64_t prompt_tokens;
    uint64_t tokens_max;
    uint64_t context_tokens_max;
    uint64_t seed;
} percept_answer;

/* A part of an answer. `text` is whole UTF-8 characters and may lag behind the tokens until the last part. */
typedef struct percept_part {
    uint64_t generation_id;
    uint64_t first_number; /* of token_ids[0]; the first token of an answer is 0 */
    const uint32_t* token_ids;
    const char* text;    /* NUL-terminated */
    const char* failure; /* why it failed or was interrupted; empty otherwise */
    uint64_t text_bytes;
    uint64_t context_used_tokens;     /* exact; 0 = this part does not say */
    uint64_t context_capacity_tokens; /* 0 = not known */
    uint32_t token_count;
    uint32_t finish; /* PERCEPT_FINISH_...: not NONE = the last part */
    uint32_t headroom_level;
    uint32_t reserved;
} percept_part;

/// Opens a session on the daemon's socket; NULL = PERCEPT_DEFAULT_SOCKET. On success *client is to be given to
/// percept_close; on error it is NULL and percept_last_error(NULL) says why.
PERCEPT_API int percept_connect(const char* socket_path, percept_client** client);

/// The same on a channel that is already open (from org.perceptd1.Manager). Takes the descriptor over, also on error.
PERCEPT_API int percept_connect_fd(int channel_fd, percept_client** client);

/// Ends the session and unmaps everything: no window of the client may be touched after. NULL is allowed.
PERCEPT_API void percept_close(percept_client* client);

/// Asks for sensors (PERCEPT_CAMERA | ...) once and waits for the answer; -1 = as long as it takes. After
/// PERCEPT_ERROR_NOT_AUTHORIZED or PERCEPT_ERROR_REFUSED another try is allowed.
PERCEPT_API int percept_subscribe(percept_client* client, uint32_t sensors, int timeout_ms);

/// Waits for the next window; 0 = do not wait, -1 = as long as it takes. *window lives until percept_release; it is
/// NULL unless PERCEPT_OK is returned. A signal ends the wait with PERCEPT_TIMEOUT.
PERCEPT_API int percept_next_window(percept_client* client, int timeout_ms, const percept_window** window);

/// 1 = every slot of the window is still the one that was sent, so all that was read from it so far counts; 0 =
/// revoked.
PERCEPT_API int percept_window_is_valid(const percept_client* client, const percept_window* window);

/// Gives the window's slots back to the daemon; the window may not be touched after. Never blocks.
PERCEPT_API int percept_release(percept_client* client, const percept_window* window);

/// Asks a model and waits until the answer has begun; -1 = as long as it takes. Loading a model may take seconds. After
/// PERCEPT_ERROR_NOT_AUTHORIZED or PERCEPT_ERROR_REFUSED another question is allowed. The answer goes on when this
/// client does not: percept_stop ends it, percept_close does not.
PERCEPT_API int percept_ask(percept_client* client, const percept_question* question, int timeout_ms,
                            percept_answer* answer);

/// Reads an answer of this user from token `next_number` on: one that runs, one that was cut short by a crash (it goes
/// on with the same tokens), or one that is over. Otherwise as percept_ask.
PERCEPT_API int percept_resume(percept_client* client, uint64_t generation_id, uint64_t next_number, int timeout_ms,
                               percept_answer* answer);

/// Waits for the next part of any answer that this client reads; 0 = do not wait, -1 = as long as it takes. *part is
/// good until the next call on the client; NULL unless PERCEPT_OK is returned. A signal ends the wait with
/// PERCEPT_TIMEOUT.
PERCEPT_API int percept_next_part(percept_client* client, int timeout_ms, const percept_part** part);

/// Ends an answer of this user; its last part says PERCEPT_FINISH_CANCELLED. Never blocks.
PERCEPT_API int percept_stop(percept_client* client, uint64_t generation_id);

/// The channel's descriptor for poll(POLLIN), still owned by the client; readable = percept_next_window has work.
PERCEPT_API int percept_fd(const percept_client* client);

/// Windows that may be held unreleased; further ones are lost and counted.
PERCEPT_API uint32_t percept_windows_in_flight_max(const percept_client* client);

/// The kind of memory that the windows lie in: "memfd", or the exporter of the dma-buf ("udmabuf", "system"). Several
/// kinds are joined by '+'. "none" before percept_subscribe. Valid until percept_close.
PERCEPT_API const char* percept_heap(const percept_client* client);

/// The newest notice.
PERCEPT_API percept_notice percept_last_notice(const percept_client* client);

/// Ends the session and waits for its final statistics; windows that still arrive are dropped. After this only
/// percept_close and the functions that read what is there may be called.
PERCEPT_API int percept_end(percept_client* client, int timeout_ms);

/// The statistics of the newest notice that carried some (the end of a recording, percept_end, ...).
PERCEPT_API percept_statistics percept_last_statistics(const percept_client* client);

/// One sentence on the last error of the client, or with NULL of this thread's last failed connect. Never NULL.
PERCEPT_API const char* percept_last_error(const percept_client* client);

/// The version of the library, such as "0.1.0".
PERCEPT_API const char* percept_version(void);

#ifdef __cplusplus
}
#endif

#endif
