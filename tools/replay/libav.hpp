// Owning handles of the libav types that the media reader uses.
// Owns each object from birth to death through unique_ptr.
// Never included outside tools/replay: the daemon must not link libav.
#pragma once

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libswresample/swresample.h>
#include <libswscale/swscale.h>
}

#include <memory>
#include <new>
#include <string>

namespace perceptd::replay::libav {

struct Deleter {
    void operator()(AVFormatContext* format) const noexcept { avformat_close_input(&format); }
    void operator()(AVCodecContext* codec) const noexcept { avcodec_free_context(&codec); }
    void operator()(AVPacket* packet) const noexcept { av_packet_free(&packet); }
    void operator()(AVFrame* frame) const noexcept { av_frame_free(&frame); }
    void operator()(SwsContext* scaler) const noexcept { sws_freeContext(scaler); }
    void operator()(SwrContext* resampler) const noexcept { swr_free(&resampler); }
};

using FormatContext = std::unique_ptr<AVFormatContext, Deleter>;
using CodecContext = std::unique_ptr<AVCodecContext, Deleter>;
using Packet = std::unique_ptr<AVPacket, Deleter>;
using Frame = std::unique_ptr<AVFrame, Deleter>;
using SwsContextPtr = std::unique_ptr<SwsContext, Deleter>;
using SwrContextPtr = std::unique_ptr<SwrContext, Deleter>;

inline Frame make_frame() {
    Frame frame(av_frame_alloc());
    if (!frame) {
        throw std::bad_alloc();
    }
    return frame;
}

inline Packet make_packet() {
    Packet packet(av_packet_alloc());
    if (!packet) {
        throw std::bad_alloc();
    }
    return packet;
}

/// libav's text for a negative return value.
inline std::string reason_of(int code) {
    char text[AV_ERROR_MAX_STRING_SIZE] = {};
    av_strerror(code, text, sizeof text);
    return text;
}

}  // namespace perceptd::replay::libav
