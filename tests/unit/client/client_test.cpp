// The client library against a daemon that keeps the contract, breaks it, or takes its memory back.
#include <catch2/catch.hpp>
#include <functional>
#include <percept/percept.hpp>
#include <thread>

#include "fake_daemon.hpp"

namespace {

namespace v1 = perceptd::v1;

constexpr std::uint32_t kWidthPx = 32;
constexpr std::uint32_t kHeightPx = 16;
constexpr std::uint32_t kStrideBytes = 64;
constexpr int kWaitMs = 2000;

template <typename T>
void put(std::byte* at, const T& value) {
    std::memcpy(at, &value, sizeof(value));
}

/// A session with all three sensors, subscribed unless a test spoils it on the way.
struct Session {
    Session() {
        daemon.send_welcome();
        REQUIRE(percept_connect_fd(daemon.client_fd, &client) == PERCEPT_OK);
        REQUIRE(daemon.receive().hello().max_version() == 1);
    }
    ~Session() { percept_close(client); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    [[nodiscard]] v1::ServerMessage streams() const {
        v1::ServerMessage message;
        v1::Streams& body = *message.mutable_streams();
        *body.add_arenas() = frames.description(1, v1::BLOCK_KIND_FRAME);
        *body.add_arenas() = patches.description(2, v1::BLOCK_KIND_PATCH);
        *body.add_arenas() = mel.description(3, v1::BLOCK_KIND_MEL);
        *body.add_arenas() = motion.description(4, v1::BLOCK_KIND_MOTION);
        body.mutable_camera()->set_width_px(kWidthPx);
        body.mutable_camera()->set_height_px(kHeightPx);
        body.mutable_camera()->set_stride_bytes(kStrideBytes);
        return message;
    }

    [[nodiscard]] std::vector<int> descriptors() const {
        return {frames.slots_fd, frames.header_fd, patches.slots_fd, patches.header_fd,
                mel.slots_fd,    mel.header_fd,    motion.slots_fd,  motion.header_fd};
    }

    int subscribe() { return percept_subscribe(client, PERCEPT_CAMERA | PERCEPT_MICROPHONE | PERCEPT_IMU, kWaitMs); }

    void start() {
        daemon.send(streams(), descriptors());
        REQUIRE(subscribe() == PERCEPT_OK);
        REQUIRE(daemon.receive().subscribe().sensors_size() == 3);
    }

    static void name(v1::BlockRef& block, std::uint32_t arena_id, std::uint64_t size_bytes) {
        block.set_arena_id(arena_id);
        block.set_slot_index(1);
        block.set_generation(2);
        block.set_size_bytes(size_bytes);
    }

    /// Fills slot 1 of each arena and gives back the window over them.
    [[nodiscard]] v1::ServerMessage window(std::uint64_t id = 7) const {
        frames.slots[fake::kSlotBytes] = std::byte{42};
        std::byte* at = patches.slots + fake::kSlotBytes;
        percept_patch_block patch_block{};
        patch_block.magic = PERCEPT_PATCH_MAGIC;
        patch_block.patch_count = 1;
        patch_block.column_count = 2;
        patch_block.row_count = 1;
        put(at, patch_block);
        put(at + sizeof(patch_block), percept_patch{1, 0, PERCEPT_PATCH_CHANGED, 3, 9.5F});
        at = mel.slots + fake::kSlotBytes;
        percept_mel_block mel_block{};
        mel_block.magic = PERCEPT_MEL_MAGIC;
        mel_block.slice_count = 2;
        mel_block.bin_count = PERCEPT_MEL_BINS;
        mel_block.level_dbfs = -30;
        put(at, mel_block);
        percept_mel_slice slice{};
        slice.slice_index = 11;
        put(at + sizeof(mel_block) + sizeof(slice), slice);
        at = motion.slots + fake::kSlotBytes;
        percept_motion_block motion_block{};
        motion_block.magic = PERCEPT_MOTION_MAGIC;
        motion_block.row_count = 1;
        motion_block.feature_count = 1;
        motion_block.state = 2;
        put(at, motion_block);
        percept_imu_row row{};
        row.accel_mps2[2] = 9.81F;
        put(at + sizeof(motion_block), row);
        percept_motion_feature feature{};
        feature.energy_mps2 = 0.5F;
        put(at + sizeof(motion_block) + sizeof(row), feature);

        v1::ServerMessage message;
        v1::Window& body = *message.mutable_window();
        body.set_id(id);
        body.set_t0_ns(100);
        body.set_t1_ns(200);
        name(*body.mutable_frame()->mutable_block(), 1, kStrideBytes * kHeightPx * 3 / 2);
        name(*body.mutable_patches(), 2, sizeof(patch_block) + sizeof(percept_patch));
        name(*body.mutable_mel(), 3, sizeof(mel_block) + 2 * sizeof(slice));
        name(*body.mutable_motion(), 4, sizeof(motion_block) + sizeof(row) + sizeof(feature));
        body.mutable_drops()->set_lost_unread_count(5);
        return message;
    }

    fake::Arena frames, patches, mel, motion;
    fake::Daemon daemon;
    percept_client* client = nullptr;
};

}  // namespace

TEST_CASE("a window is read in place and given back") {
    Session session;
    session.start();
    CHECK(std::string(percept_heap(session.client)) == "memfd");
    session.daemon.send(session.window());
    const percept_window* window = nullptr;
    REQUIRE(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_OK);
    CHECK(window->id == 7);
    CHECK(window->frame.luma[0] == 42);
    CHECK(window->frame.chroma == window->frame.luma + kStrideBytes * kHeightPx);
    CHECK(window->patches[0].age_frames == 3);
    CHECK(window->mel_slices[1].slice_index == 11);
    CHECK(window->imu_rows[0].accel_mps2[2] == 9.81F);
    CHECK(window->motion_features[0].energy_mps2 == 0.5F);
    CHECK(window->drops.lost_unread_count == 5);
    session.frames.slots[fake::kSlotBytes] = std::byte{43};
    CHECK(window->frame.luma[0] == 43);  // the same memory, not a copy
    CHECK(percept_window_is_valid(session.client, window) == 1);
    REQUIRE(percept_release(session.client, window) == PERCEPT_OK);
    CHECK(session.daemon.receive().release().window_ids(0) == 7);
    CHECK(percept_release(session.client, window) == PERCEPT_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("a window may lack every stream") {
    Session session;
    session.start();
    v1::ServerMessage message;
    message.mutable_window()->set_id(1);
    message.mutable_window()->set_flags(v1::WINDOW_FLAG_MISSING_VIDEO);
    session.daemon.send(message);
    const percept_window* window = nullptr;
    REQUIRE(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_OK);
    CHECK(window->flags == PERCEPT_WINDOW_MISSING_VIDEO);
    CHECK(window->frame.luma == nullptr);
    CHECK(window->patches == nullptr);
    CHECK(window->mel_slices == nullptr);
    CHECK(window->imu_rows == nullptr);
    CHECK(percept_window_is_valid(session.client, window) == 1);
}

TEST_CASE("a revoked window says so, and one revoked on the way is skipped") {
    Session session;
    session.start();
    session.daemon.send(session.window(1));
    const percept_window* window = nullptr;
    REQUIRE(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_OK);
    session.mel.revoke(1);
    CHECK(percept_window_is_valid(session.client, window) == 0);
    REQUIRE(percept_release(session.client, window) == PERCEPT_OK);
    CHECK(session.daemon.receive().release().window_ids(0) == 1);

    const v1::ServerMessage second = session.window(2);
    session.mel.slots[fake::kSlotBytes] = std::byte{0};  // half rewritten: no magic number any more
    session.daemon.send(second);
    CHECK(percept_next_window(session.client, 0, &window) == PERCEPT_TIMEOUT);
    CHECK(session.daemon.receive().release().window_ids(0) == 2);
}

TEST_CASE("the end of a recording and the end of the daemon") {
    Session session;
    session.start();
    const percept_window* window = nullptr;
    CHECK(percept_next_window(session.client, 0, &window) == PERCEPT_TIMEOUT);
    SECTION("end of stream") {
        v1::ServerMessage message;
        message.mutable_notice()->set_kind(v1::NOTICE_KIND_END_OF_STREAM);
        message.mutable_notice()->set_text("the recording is over");
        session.daemon.send(message);
        CHECK(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_END_OF_STREAM);
        CHECK(std::string(percept_last_notice(session.client).text) == "the recording is over");
    }
    SECTION("the daemon goes away") {
        session.daemon.hang_up();
        CHECK(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_ERROR_DISCONNECTED);
        CHECK(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_ERROR_DISCONNECTED);
    }
    CHECK(window == nullptr);
}

TEST_CASE("a denial leaves the session ready for another try") {
    Session session;
    v1::ServerMessage message;
    message.mutable_error()->set_code(v1::ERROR_CODE_NOT_AUTHORIZED);
    message.mutable_error()->set_text("the camera is not for you");
    session.daemon.send(message);
    CHECK(session.subscribe() == PERCEPT_ERROR_NOT_AUTHORIZED);
    CHECK(std::string(percept_last_error(session.client)) == "perceptd: the camera is not for you");
    REQUIRE(session.daemon.receive().has_subscribe());
    session.start();
}

TEST_CASE("hostile windows end the session") {
    using Spoil = std::function<void(v1::Window&, Session&)>;
    const auto [name, spoil] = GENERATE(table<const char*, Spoil>({
        {"slot out of range", [](auto& window, auto&) { window.mutable_mel()->set_slot_index(fake::kSlotCount); }},
        {"unknown arena", [](auto& window, auto&) { window.mutable_mel()->set_arena_id(99); }},
        {"arena of another kind", [](auto& window, auto&) { window.mutable_mel()->set_arena_id(2); }},
        {"offset past the slot", [](auto& window, auto&) { window.mutable_mel()->set_offset_bytes(1 << 20); }},
        {"size that overflows", [](auto& window, auto&) { window.mutable_mel()->set_size_bytes(~std::uint64_t{0}); }},
        {"misaligned block", [](auto& window, auto&) { window.mutable_mel()->set_offset_bytes(4); }},
        {"odd generation", [](auto& window, auto&) { window.mutable_mel()->set_generation(3); }},
        {"short frame", [](auto& window, auto&) { window.mutable_frame()->mutable_block()->set_size_bytes(100); }},
        {"ends before it begins", [](auto& window, auto&) { window.set_t1_ns(1); }},
        {"more slices than bytes",
         [](auto&, auto& session) {
             reinterpret_cast<percept_mel_block*>(session.mel.slots + fake::kSlotBytes)->slice_count = 0xffffffffU;
         }},
        {"more patches than the grid",
         [](auto&, auto& session) {
             reinterpret_cast<percept_patch_block*>(session.patches.slots + fake::kSlotBytes)->patch_count = 3;
         }},
        {"more features than bytes",
         [](auto&, auto& session) {
             reinterpret_cast<percept_motion_block*>(session.motion.slots + fake::kSlotBytes)->feature_count = 2;
         }},
    }));
    INFO(name);
    Session session;
    session.start();
    v1::ServerMessage message = session.window();
    spoil(*message.mutable_window(), session);
    session.daemon.send(message);
    const percept_window* window = nullptr;
    CHECK(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_ERROR_PROTOCOL);
    CHECK(window == nullptr);
    CHECK_FALSE(std::string(percept_last_error(session.client)).empty());
    CHECK(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_ERROR_PROTOCOL);
}

TEST_CASE("hostile streams are not mapped") {
    Session session;
    v1::ServerMessage message = session.streams();
    std::vector<int> fds = session.descriptors();
    v1::ArenaDescription& first = *message.mutable_streams()->mutable_arenas(0);
    SECTION("no descriptors") {
        fds.clear();
    }
    SECTION("a descriptor short") {
        fds.pop_back();
    }
    SECTION("descriptors in the wrong order") {
        std::swap(fds[0], fds[2]);
    }
    SECTION("no slots") {
        first.set_slot_count(0);
    }
    SECTION("too many slots") {
        first.set_slot_count(PERCEPT_ARENA_SLOTS_MAX + 1);
    }
    SECTION("more slots than the buffer") {
        first.set_slot_count(fake::kSlotCount + 1);
    }
    SECTION("a stride off the page") {
        first.set_slot_stride_bytes(100);
    }
    SECTION("a stride that overflows") {
        first.set_slot_stride_bytes(std::uint64_t{1} << 63);
    }
    SECTION("slots longer than the stride") {
        first.set_slot_bytes(fake::kSlotBytes + 1);
    }
    SECTION("the same arena twice") {
        message.mutable_streams()->mutable_arenas(1)->set_id(1);
    }
    SECTION("a frame wider than its rows") {
        message.mutable_streams()->mutable_camera()->set_stride_bytes(8);
    }
    SECTION("a header page that disagrees") {
        session.frames.header->slot_count = 1;
    }
    SECTION("another layout") {
        session.frames.header->version = 2;
    }
    const fake::Arena loose(fake::kSlotBytes * fake::kSlotCount, 0);
    SECTION("a buffer that may shrink") {
        first = loose.description(1, v1::BLOCK_KIND_FRAME);
        fds[0] = loose.slots_fd;
    }
    SECTION("a header that may shrink") {
        fds[1] = loose.header_fd;
    }
    session.daemon.send(message, fds);
    CHECK(session.subscribe() == PERCEPT_ERROR_PROTOCOL);
    CHECK(session.subscribe() == PERCEPT_ERROR_PROTOCOL);
}

TEST_CASE("hostile bytes end the session") {
    Session session;
    session.start();
    const percept_window* window = nullptr;
    SECTION("no message") {
        session.daemon.send_bytes("\xff\xff\xff");
    }
    SECTION("too long") {
        session.daemon.send_bytes(std::string(70000, '\0'));
    }
    SECTION("a flood of descriptors") {
        session.daemon.send_bytes("x", std::vector<int>(12, session.mel.slots_fd));
    }
    SECTION("a second greeting") {
        session.daemon.send_welcome();
    }
    CHECK(percept_next_window(session.client, kWaitMs, &window) == PERCEPT_ERROR_PROTOCOL);
}

TEST_CASE("connecting explains what is wrong and what to do") {
    percept_client* client = nullptr;
    SECTION("nobody listens") {
        CHECK(percept_connect("/nonexistent/perceptd.sock", &client) == PERCEPT_ERROR_NOT_RUNNING);
        CHECK_THAT(percept_last_error(nullptr), Catch::Contains("systemctl start perceptd"));
    }
    SECTION("another version") {
        fake::Daemon daemon;
        daemon.send_welcome(9);
        CHECK(percept_connect_fd(daemon.client_fd, &client) == PERCEPT_ERROR_VERSION_MISMATCH);
    }
    SECTION("refused before the greeting") {
        fake::Daemon daemon;
        daemon.send_refusal("as many sessions as it may");
        daemon.hang_up();
        CHECK(percept_connect_fd(daemon.client_fd, &client) == PERCEPT_ERROR_REFUSED);
        CHECK_THAT(percept_last_error(nullptr), Catch::Contains("as many sessions as it may"));
    }
    SECTION("refused with the greeting unread") {
        fake::Daemon daemon;
        std::thread refusing([&daemon] {
            daemon.wait_for_message();
            daemon.send_refusal("as many sessions as it may");
            daemon.hang_up();
        });
        const int status = percept_connect_fd(daemon.client_fd, &client);
        refusing.join();
        CHECK(status == PERCEPT_ERROR_REFUSED);
        CHECK_THAT(percept_last_error(nullptr), Catch::Contains("as many sessions as it may"));
    }
    SECTION("no socket") {
        CHECK(percept_connect_fd(::memfd_create("x", MFD_CLOEXEC), &client) == PERCEPT_ERROR_INVALID_ARGUMENT);
    }
    CHECK(client == nullptr);
}

TEST_CASE("calls out of order are refused, not fatal") {
    Session session;
    const percept_window* window = nullptr;
    CHECK(percept_next_window(session.client, 0, &window) == PERCEPT_ERROR_INVALID_ARGUMENT);
    CHECK(percept_subscribe(session.client, 0, 0) == PERCEPT_ERROR_INVALID_ARGUMENT);
    CHECK(percept_subscribe(nullptr, PERCEPT_IMU, 0) == PERCEPT_ERROR_INVALID_ARGUMENT);
    session.start();
    CHECK(session.subscribe() == PERCEPT_ERROR_INVALID_ARGUMENT);
}

TEST_CASE("the C++ wrapper releases by itself") {
    fake::Daemon daemon;
    daemon.send_welcome();
    percept::Client client = percept::Client::adopt(daemon.client_fd);
    REQUIRE(daemon.receive().has_hello());
    v1::ServerMessage message;
    message.mutable_streams();
    daemon.send(message);
    client.subscribe(PERCEPT_IMU, kWaitMs);
    REQUIRE(daemon.receive().has_subscribe());
    message.mutable_window()->set_id(3);
    daemon.send(message);
    {
        const auto window = client.next_window(kWaitMs);
        REQUIRE(window.has_value());
        CHECK((*window)->id == 3);
        CHECK(window->imu_rows().empty());
    }
    CHECK(daemon.receive().release().window_ids(0) == 3);
    CHECK_THROWS_AS(percept::Client("/nonexistent/perceptd.sock"), percept::Error);
}
