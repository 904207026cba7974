/* The C interface of libpercept: synchronized windows of perceptd's sensors, read in place from shared memory.
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
