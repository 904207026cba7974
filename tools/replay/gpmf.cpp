#include "gpmf.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

namespace perceptd::replay {
namespace {

constexpr int depth_max = 8;
constexpr std::size_t header_bytes = 8;

constexpr std::uint32_t key_of(const char (&text)[5]) {
    return std::uint32_t(std::uint8_t(text[0])) << 24 | std::uint32_t(std::uint8_t(text[1])) << 16 |
           std::uint32_t(std::uint8_t(text[2])) << 8 | std::uint32_t(std::uint8_t(text[3]));
}

[[noreturn]] void refuse(std::size_t offset, const std::string& reason) {
    throw RecordingError("GPMF telemetry: " + reason + " at byte " + std::to_string(offset) +
                         " of the packet; the track is damaged, export the recording again");
}

std::uint16_t be16(const std::uint8_t* at) {
    return std::uint16_t(at[0] << 8 | at[1]);
}
std::uint32_t be32(const std::uint8_t* at) {
    return std::uint32_t(be16(at)) << 16 | be16(at + 2);
}

/// One item; the value lies inside the packet.
struct Item {
    std::uint32_t key;
    char type;  // 0 = nested
    std::size_t struct_bytes;
    std::size_t count;
    std::size_t offset;  // of the item, for messages
    std::span<const std::uint8_t> value;
};

/// What the items of one STRM said so far.
struct Stream {
    std::vector<double> divisors;
    std::array<std::uint8_t, 3> channel_of_axis{1, 2, 0};  // Z, X, Y
    std::array<float, 3> sign_of_axis{1, 1, 1};
    std::vector<std::array<float, 3>> accel, gyro;
};

void read_scale(const Item& item, Stream& stream) {
    std::size_t width = 0;
    switch (item.type) {
        case 'b':
        case 'B': width = 1; break;
        case 's':
        case 'S': width = 2; break;
        case 'l':
        case 'L':
        case 'f': width = 4; break;
        default: return;  // scales of streams that we do not read come in other types
    }
    stream.divisors.clear();
    for (std::size_t at = 0; at + width <= item.value.size() && stream.divisors.size() < 16; at += width) {
        const std::uint8_t* bytes = item.value.data() + at;
        switch (item.type) {
            case 'b': stream.divisors.push_back(std::int8_t(*bytes)); break;
            case 'B': stream.divisors.push_back(*bytes); break;
            case 's': stream.divisors.push_back(std::int16_t(be16(bytes))); break;
            case 'S': stream.divisors.push_back(be16(bytes)); break;
            case 'l': stream.divisors.push_back(std::int32_t(be32(bytes))); break;
            case 'L': stream.divisors.push_back(be32(bytes)); break;
            default: stream.divisors.push_back(double(std::bit_cast<float>(be32(bytes)))); break;
        }
    }
}

void read_axes(const Item& item, Stream& stream) {
    if (item.value.size() != 3) {
        return;  // the orientation of something with another number of channels
    }
    unsigned seen = 0;
    Stream parsed;
    for (std::uint8_t channel = 0; channel < 3; ++channel) {
        const char letter = char(item.value[channel]);
        const bool inverted = letter >= 'x' && letter <= 'z';
        const int axis = letter - (inverted ? 'x' : 'X');
        if (axis < 0 || axis > 2 || (seen & (1u << axis)) != 0) {
            refuse(item.offset, "ORIN does not name each of X, Y and Z once");
        }
        seen |= 1u << axis;
        parsed.channel_of_axis[std::size_t(axis)] = channel;
        parsed.sign_of_axis[std::size_t(axis)] = inverted ? -1.0f : 1.0f;
    }
    stream.channel_of_axis = parsed.channel_of_axis;
    stream.sign_of_axis = parsed.sign_of_axis;
}

void read_samples(const Item& item, const Stream& stream, std::vector<std::array<float, 3>>& samples) {
    if (item.count == 0) {
        return;
    }
    if (item.type != 's' || item.struct_bytes != 6) {
        refuse(item.offset, "ACCL or GYRO is not three 16-bit channels");
    }
    const std::size_t scale_count = stream.divisors.size();
    if (scale_count != 1 && scale_count != 3) {
        refuse(item.offset, "ACCL or GYRO has " + std::to_string(scale_count) + " SCAL values instead of 1 or 3");
    }
    for (const double divisor : stream.divisors) {
        if (!std::isfinite(divisor) || divisor == 0.0) {
            refuse(item.offset, "SCAL of ACCL or GYRO is zero or not finite");
        }
    }
    samples.reserve(samples.size() + item.count);
    for (std::size_t i = 0; i < item.count; ++i) {
        std::array<float, 3> sample{};
        for (std::size_t axis = 0; axis < 3; ++axis) {
            const std::size_t channel = stream.channel_of_axis[axis];
            const double divisor = stream.divisors[scale_count == 1 ? 0 : channel];
            const auto raw = std::int16_t(be16(item.value.data() + i * 6 + channel * 2));
            sample[axis] = stream.sign_of_axis[axis] * float(raw / divisor);
            if (!std::isfinite(sample[axis])) {
                refuse(item.offset, "SCAL of ACCL or GYRO gives a value that is not finite");
            }
        }
        samples.push_back(sample);
    }
}

class Parser {
public:
    explicit Parser(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

    GpmfPacket parse() {
        Stream outside;  // samples outside a STRM are not GPMF; what lands here is dropped
        walk(0, bytes_.size(), 0, outside);
        return std::move(packet_);
    }

private:
    void walk(std::size_t begin, std::size_t end, int depth, Stream& stream) {
        if (depth > depth_max) {
            refuse(begin, "items are nested too deeply");
        }
        for (std::size_t at = begin; at < end;) {
            if (end - at < 4) {
                refuse(at, "an item header is cut short");
            }
            const std::uint32_t key = be32(bytes_.data() + at);
            if (key == 0) {
                return;  // padding up to the end
            }
            if (end - at < header_bytes) {
                refuse(at, "an item header is cut short");
            }
            const std::uint8_t* head = bytes_.data() + at;
            Item item{key, char(head[4]), head[5], be16(head + 6), at, {}};
            const std::size_t size = item.struct_bytes * item.count;
            if (size > end - at - header_bytes) {
                refuse(at, "an item is longer than what holds it");
            }
            item.value = bytes_.subspan(at + header_bytes, size);
            read(item, depth, stream);
            const std::size_t padded = header_bytes + (size + 3) / 4 * 4;
            at += std::min(padded, end - at);
        }
    }

    void read(const Item& item, int depth, Stream& stream) {
        const std::size_t begin = item.offset + header_bytes;
        if (item.type == 0) {
            if (item.key != key_of("STRM")) {
                walk(begin, begin + item.value.size(), depth + 1, stream);
                return;
            }
            Stream inner;
            walk(begin, begin + item.value.size(), depth + 1, inner);
            take(inner.accel, packet_.accel_mps2);
            take(inner.gyro, packet_.gyro_radps);
        } else if (item.key == key_of("SCAL")) {
            read_scale(item, stream);
        } else if (item.key == key_of("ORIN")) {
            read_axes(item, stream);
        } else if (item.key == key_of("ACCL")) {
            read_samples(item, stream, stream.accel);
        } else if (item.key == key_of("GYRO")) {
            read_samples(item, stream, stream.gyro);
        }
    }

    static void take(std::vector<std::array<float, 3>>& from, std::vector<std::array<float, 3>>& into) {
        if (into.empty()) {
            into = std::move(from);
        }
    }

    std::span<const std::uint8_t> bytes_;
    GpmfPacket packet_;
};

}  // namespace

GpmfPacket parse_gpmf(std::span<const std::uint8_t> bytes) {
    return Parser(bytes).parse();
}

void append_rows(const GpmfPacket& packet, std::int64_t start_ns, std::int64_t duration_ns, std::vector<ImuRow>& rows) {
    const std::size_t accel_count = packet.accel_mps2.size();
    const std::size_t gyro_count = packet.gyro_radps.size();
    const std::size_t count = accel_count != 0 ? accel_count : gyro_count;
    rows.reserve(rows.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
        ImuRow row;
        row.time_ns = start_ns + std::int64_t(double(duration_ns) * double(i) / double(count));
        row.has_accel = accel_count != 0;
        row.has_gyro = gyro_count != 0;
        if (row.has_accel) {
            std::copy_n(packet.accel_mps2[i].begin(), 3, row.accel_mps2);
        }
        if (row.has_gyro) {
            const double position = double(i) * double(gyro_count) / double(count);
            const std::size_t before = std::min(std::size_t(position), gyro_count - 1);
            const std::size_t after = std::min(before + 1, gyro_count - 1);
            const auto weight = float(position - double(before));
            for (std::size_t axis = 0; axis < 3; ++axis) {
                const float left = packet.gyro_radps[before][axis];
                row.gyro_radps[axis] = left + weight * (packet.gyro_radps[after][axis] - left);
            }
        }
        rows.push_back(row);
    }
}

}  // namespace perceptd::replay
