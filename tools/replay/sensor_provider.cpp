#include "sensor_provider.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <atomic>

#include "failure.hpp"

namespace perceptd::replay {
namespace {

constexpr std::uint32_t protocol_version = 1;
constexpr int answer_timeout_ms = 10'000;
constexpr int longest_wait_ms = 100;  // bounds how long an interruption goes unseen

std::int64_t monotonic_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

WritableMapping::WritableMapping(int fd, std::size_t size_bytes) : size_bytes_(size_bytes) {
    void* const address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
        percept::throw_system("mapping perceptd's slots");
    }
    data_ = static_cast<std::byte*>(address);
}

WritableMapping::~WritableMapping() {
    if (data_ != nullptr) {
        ::munmap(data_, size_bytes_);
    }
}

SensorProvider::SensorProvider(const std::string& socket_path, const v1::Provide& offer,
                               std::function<bool()> is_interrupted)
    : is_interrupted_(std::move(is_interrupted)), channel_(percept::Channel::connect(socket_path)) {
    v1::ClientMessage message;
    message.mutable_hello()->set_min_version(protocol_version);
    message.mutable_hello()->set_max_version(protocol_version);
    send(message);
    static_cast<void>(expect(v1::ServerMessage::kWelcome));
    *message.mutable_provide() = offer;
    send(message);
    percept::Packet packet = expect(v1::ServerMessage::kProvision);
    adopt(packet.message.provision(), std::move(packet.descriptors));
    message.mutable_provider_ready();
    send(message);
}

void SensorProvider::send(const v1::ClientMessage& message) {
    if (!channel_.send(message)) {
        throw percept::Failure(PERCEPT_ERROR_DISCONNECTED, "perceptd does not read its channel");
    }
}

percept::Packet SensorProvider::expect(v1::ServerMessage::BodyCase body) {
    const std::int64_t end_ns = monotonic_ns() + std::int64_t{answer_timeout_ms} * 1'000'000;
    while (monotonic_ns() < end_ns && !is_interrupted_()) {
        if (std::optional<percept::Packet> packet = channel_.receive()) {
            if (packet->message.body_case() == body) {
                return std::move(*packet);
            }
            handle(packet->message);
        } else {
            static_cast<void>(channel_.wait(longest_wait_ms, false));
        }
    }
    throw percept::Failure(
        PERCEPT_ERROR_DISCONNECTED,
        "perceptd did not answer: see 'systemctl status perceptd', or the output of the perceptd you started");
}

void SensorProvider::adopt(const v1::Provision& provision, std::vector<percept::UniqueFd> descriptors) {
    const std::size_t expected =
        2 + std::size_t{provision.has_camera() ? 1U : 0U} + std::size_t{provision.has_audio() ? 1U : 0U};
    if (descriptors.size() != expected || provision.feed_bytes() < sizeof(percept_feed)) {
        percept::throw_protocol("a Provision with " + std::to_string(descriptors.size()) + " descriptors");
    }
    ring_ = WritableMapping(descriptors[0].borrow(), sizeof(percept_feed));
    doorbell_ = std::move(descriptors[1]);
    if (feed().magic != PERCEPT_FEED_MAGIC || feed().version != PERCEPT_LAYOUT_VERSION) {
        percept::throw_protocol("a feed of another version");
    }
    std::size_t next = 2;
    const auto map = [&](Slots& slots, const v1::ProvidedSlots& from) {
        if (from.slot_count() == 0 || from.slot_count() > PERCEPT_ARENA_SLOTS_MAX ||
            from.slot_bytes() > from.slot_stride_bytes()) {
            percept::throw_protocol("impossible slots");
        }
        slots.mapping = WritableMapping(descriptors[next++].borrow(), from.slot_count() * from.slot_stride_bytes());
        slots.slot_count = from.slot_count();
        slots.stride_bytes = from.slot_stride_bytes();
        slots.slot_bytes = from.slot_bytes();
    };
    if (provision.has_camera()) {
        map(slots_[0], provision.camera());
    }
    if (provision.has_audio()) {
        map(slots_[1], provision.audio());
    }
}

percept_feed& SensorProvider::feed() const noexcept {
    return *reinterpret_cast<percept_feed*>(ring_.data());
}

void SensorProvider::handle(const v1::ServerMessage& message) {
    switch (message.body_case()) {
        case v1::ServerMessage::kStart: {
            ProviderRun run;
            for (const int sensor : message.start().sensors()) {
                if (sensor >= v1::SENSOR_CAMERA && sensor <= v1::SENSOR_IMU) {
                    run.is_on[static_cast<std::size_t>(sensor) - 1] = true;
                }
            }
            run.run = message.start().run();
            run.hub_start_ns = message.start().hub_start_ns();
            run_ = run;
            ++change_count_;
            return;
        }
        case v1::ServerMessage::kStop:
            run_.reset();
            ++change_count_;
            return;
        case v1::ServerMessage::kError:
            throw percept::Failure(PERCEPT_ERROR_REFUSED, "perceptd: " + message.error().text());
        default: return;  // notices are for clients
    }
}

void SensorProvider::take_messages() {
    while (std::optional<percept::Packet> packet = channel_.receive()) {
        handle(packet->message);
    }
}

void SensorProvider::wait(int timeout_ms) {
    std::array<pollfd, 2> fds{{{channel_.fd(), POLLIN, 0}, {doorbell_.borrow(), POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), timeout_ms) > 0 && fds[1].revents != 0) {
        std::array<char, 256> rings;
        static_cast<void>(::recv(doorbell_.borrow(), rings.data(), rings.size(), MSG_DONTWAIT));
    }
    take_messages();
}

std::optional<ProviderRun> SensorProvider::wait_for_change() {
    take_messages();
    while (change_count_ == seen_change_count_ && !is_interrupted_()) {
        wait(longest_wait_ms);
    }
    seen_change_count_ = change_count_;
    return run_;
}

bool SensorProvider::keeps_running(std::int64_t until_ns) {
    while (true) {
        take_messages();
        if (change_count_ != seen_change_count_ || is_interrupted_()) {
            return false;
        }
        const std::int64_t left_ns = until_ns - monotonic_ns();
        if (until_ns == 0 || left_ns <= 0) {
            return true;
        }
        if (left_ns < 1'000'000) {
            const timespec rest{0, left_ns};
            ::clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, nullptr);
        } else {
            wait(static_cast<int>(std::min<std::int64_t>(left_ns / 1'000'000, longest_wait_ms)));
        }
    }
}

std::optional<std::uint32_t> SensorProvider::take_slot(std::uint32_t stream) {
    Slots& slots = slots_.at(stream - 1);
    while (keeps_running(0)) {
        const std::atomic_ref<std::uint64_t> tail(feed().free_tail[stream - 1]);
        if (tail.load(std::memory_order_acquire) != slots.free_head) {
            const std::uint32_t slot_index = feed().free_slots[stream - 1][slots.free_head % PERCEPT_FEED_FREE_SLOTS];
            ++slots.free_head;
            std::atomic_ref<std::uint64_t>(feed().free_head[stream - 1])
                .store(slots.free_head, std::memory_order_release);
            if (slot_index < slots.slot_count) {
                return slot_index;
            }
            percept::throw_protocol("a slot that does not exist");
        }
        wait(longest_wait_ms);
    }
    return std::nullopt;
}

std::span<std::byte> SensorProvider::slot(std::uint32_t stream, std::uint32_t slot_index) const {
    const Slots& slots = slots_.at(stream - 1);
    return {slots.mapping.data() + slot_index * slots.stride_bytes, slots.slot_bytes};
}

bool SensorProvider::submit(percept_feed_record record) {
    const std::atomic_ref<std::uint64_t> head(feed().record_head);
    while (record_tail_ - head.load(std::memory_order_acquire) >= PERCEPT_FEED_RING_RECORDS) {
        if (!keeps_running(0)) {
            return false;
        }
        wait(longest_wait_ms);
    }
    record.run = run_ ? run_->run : 0;
    feed().records[record_tail_ % PERCEPT_FEED_RING_RECORDS] = record;
    ++record_tail_;
    std::atomic_ref<std::uint64_t>(feed().record_tail).store(record_tail_, std::memory_order_release);
    static_cast<void>(!::send(doorbell_.borrow(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    return true;
}

}  // namespace perceptd::replay
