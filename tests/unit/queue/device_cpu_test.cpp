// The CPU device through the queue: products and convolutions beside plain loops, decoders beside the formulas in
// double, urgent jobs that overtake, cancel, and what clients must not get away with.
#include "queue/device_cpu.hpp"

#include <poll.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>

#include "base/clock.hpp"
#include "base/hot_path.hpp"
#include "model/gguf.hpp"
#include "queue/device_queue.hpp"
#include "support/random_decoder.hpp"
#include "unit/queue/fake_device.hpp"

using namespace perceptd;
using namespace perceptd::queue;

namespace {

constexpr std::int64_t kMs = 1'000'000;

/// A queue with the CPU device (behind `before`, if any) and one buffer that the test sees as well.
struct Cpu {
    static constexpr std::size_t kBytes = 8U << 20;

    explicit Cpu(std::unique_ptr<Device> before = nullptr, DeviceCpuOptions options = {})
        : memory(::memfd_create("cpu test", MFD_CLOEXEC)) {
        REQUIRE(::ftruncate(memory.borrow(), kBytes) == 0);
        mapping = MappedRegion(memory.borrow(), kBytes, MapAccess::ReadWrite);
        std::vector<std::unique_ptr<Device>> devices;
        if (before) {
            devices.push_back(std::move(before));
        }
        devices.push_back(std::make_unique<DeviceCpu>(options));
        queue = std::make_unique<DeviceQueue>(std::move(devices), DeviceQueueOptions{});
        queue->on_completion = [this](const Completion& completion) {
            told[completion.id] = completion;
            order.push_back(completion.id);
        };
        queue->on_program = [this](ProgramId id, JobStatus status, std::string_view reason) {
            loaded[id] = {status, std::string(reason)};
        };
        buffer =
            queue->import_buffer({.fd = memory.borrow(), .size_bytes = kBytes, .access = kAccessRead | kAccessWrite});
    }

    template <typename T>
    T* at(std::size_t offset) {
        return reinterpret_cast<T*>(mapping.data() + offset);
    }
    Job job(ProgramId program, std::vector<std::pair<std::size_t, std::size_t>> inputs,
            std::pair<std::size_t, std::size_t> output) const {
        Job made;
        made.program = program;
        made.input_count = static_cast<std::uint32_t>(inputs.size());
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            made.inputs[i] = {buffer, inputs[i].first, inputs[i].second, UniqueFd(), fence::Fence::Kind::Pipe};
        }
        made.output_count = 1;
        made.outputs[0] = {buffer, output.first, output.second, UniqueFd(), fence::Fence::Kind::Pipe};
        return made;
    }
    JobId submit(Job made) {
        const Submitted answer = queue->submit(std::move(made), false);
        REQUIRE(answer.status == Status::Ok);
        queue->dispatch();
        return answer.id;
    }
    template <typename Condition>
    void pump_until(Condition condition) {
        for (int i = 0; i < 3000 && !condition(); ++i) {
            pollfd entry{queue->fd(), POLLIN, 0};
            ::poll(&entry, 1, 10);
            queue->dispatch();
        }
        REQUIRE(condition());
    }
    JobStatus run(Job made) {
        const JobId id = submit(std::move(made));
        pump_until([&] { return told.count(id) != 0; });
        return told[id].status;
    }

    UniqueFd memory;
    MappedRegion mapping;
    std::unique_ptr<DeviceQueue> queue;
    BufferId buffer = 0;
    std::map<JobId, Completion> told;
    std::vector<JobId> order;
    std::map<ProgramId, std::pair<JobStatus, std::string>> loaded;
};

StandardProgram product(std::uint32_t rows, std::uint32_t columns, std::uint32_t depth, StandardProgram::Types types) {
    StandardProgram program;
    program.types = types;
    program.rows = rows;
    program.columns = columns;
    program.depth = depth;
    return program;
}

StandardProgram convolution(std::uint32_t height, std::uint32_t width, std::uint32_t channels, std::uint32_t outputs,
                            std::uint32_t kernel, std::uint32_t stride, StandardProgram::Types types) {
    StandardProgram program;
    program.operation = StandardProgram::Operation::Convolution;
    program.types = types;
    program.height = height;
    program.width = width;
    program.channels = channels;
    program.outputs = outputs;
    program.kernel = kernel;
    program.stride = stride;
    return program;
}

constexpr std::size_t kB = 2U << 20;
constexpr std::size_t kC = 4U << 20;

void fill(std::int8_t* values, std::size_t count, std::mt19937& random) {
    std::generate_n(values, count, [&] { return static_cast<std::int8_t>(random()); });
}
void fill(float* values, std::size_t count, std::mt19937& random) {
    std::generate_n(values, count,
                    [&] { return static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 256.0F; });
}

/// The formula of proto/percept_driver.h, one element after the other.
template <typename In, typename Out>
void require_product(Cpu& cpu, std::uint32_t rows, std::uint32_t columns, std::uint32_t depth) {
    const In* const a = cpu.at<In>(0);
    const In* const b = cpu.at<In>(kB);
    const Out* const c = cpu.at<Out>(kC);
    for (std::uint32_t r = 0; r < rows; ++r) {
        for (std::uint32_t k = 0; k < columns; ++k) {
            Out sum{};
            for (std::uint32_t d = 0; d < depth; ++d) {
                sum += static_cast<Out>(a[r * depth + d]) * static_cast<Out>(b[d * columns + k]);
            }
            REQUIRE(c[r * columns + k] == sum);
        }
    }
}

template <typename In, typename Out>
void require_convolution(Cpu& cpu, const StandardProgram& p) {
    const std::uint32_t out_height = (p.height - p.kernel) / p.stride + 1;
    const std::uint32_t out_width = (p.width - p.kernel) / p.stride + 1;
    const In* const input = cpu.at<In>(0);
    const In* const kernel = cpu.at<In>(kB);
    const Out* const out = cpu.at<Out>(kC);
    for (std::uint32_t y = 0; y < out_height; ++y) {
        for (std::uint32_t x = 0; x < out_width; ++x) {
            for (std::uint32_t o = 0; o < p.outputs; ++o) {
                Out sum{};
                for (std::uint32_t j = 0; j < p.kernel; ++j) {
                    for (std::uint32_t i = 0; i < p.kernel; ++i) {
                        for (std::uint32_t c = 0; c < p.channels; ++c) {
                            sum += static_cast<Out>(
                                       input[((y * p.stride + j) * p.width + x * p.stride + i) * p.channels + c]) *
                                   static_cast<Out>(kernel[((j * p.kernel + i) * p.channels + c) * p.outputs + o]);
                        }
                    }
                }
                REQUIRE(out[(y * out_width + x) * p.outputs + o] == sum);
            }
        }
    }
}

std::string model_file(const support::RandomDecoderOptions& options, const std::string& name) {
    const std::vector<std::byte> bytes = support::random_decoder(options);
    const std::string path = (std::filesystem::temp_directory_path() / (name + std::to_string(::getpid()))).string();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path;
}

}  // namespace

TEST_CASE("Products and convolutions are exactly the formulas") {
    using Types = StandardProgram::Types;
    Cpu cpu;
    std::mt19937 random(3);
    for (const auto& [rows, columns, depth] :
         std::vector<std::array<std::uint32_t, 3>>{{1, 1, 1}, {3, 5, 7}, {17, 64, 33}, {2, 300, 1700}, {40, 31, 128}}) {
        fill(cpu.at<std::int8_t>(0), rows * depth, random);
        fill(cpu.at<std::int8_t>(kB), depth * columns, random);
        const ProgramId bytes = cpu.queue->load(product(rows, columns, depth, Types::I8I32));
        REQUIRE(cpu.run(cpu.job(bytes, {{0, rows * depth}, {kB, depth * columns}}, {kC, rows * columns * 4})) ==
                JobStatus::Ok);
        require_product<std::int8_t, std::int32_t>(cpu, rows, columns, depth);
        fill(cpu.at<float>(0), rows * depth, random);
        fill(cpu.at<float>(kB), depth * columns, random);
        const ProgramId floats = cpu.queue->load(product(rows, columns, depth, Types::F32F32));
        REQUIRE(cpu.run(cpu.job(floats, {{0, rows * depth * 4}, {kB, depth * columns * 4}},
                                {kC, rows * columns * 4})) == JobStatus::Ok);
        require_product<float, float>(cpu, rows, columns, depth);
    }
    for (const StandardProgram& shape :
         {convolution(5, 6, 3, 4, 3, 1, Types::I8I32), convolution(9, 9, 2, 5, 2, 3, Types::I8I32),
          convolution(4, 4, 1, 1, 4, 2, Types::I8I32)}) {
        fill(cpu.at<std::int8_t>(0), 4096, random);
        fill(cpu.at<std::int8_t>(kB), 4096, random);
        const std::size_t places =
            ((shape.height - shape.kernel) / shape.stride + 1) * ((shape.width - shape.kernel) / shape.stride + 1);
        const std::size_t inputs = shape.height * shape.width * shape.channels;
        const std::size_t kernels = shape.kernel * shape.kernel * shape.channels * shape.outputs;
        const ProgramId id = cpu.queue->load(shape);
        REQUIRE(cpu.run(cpu.job(id, {{0, inputs}, {kB, kernels}}, {kC, places * shape.outputs * 4})) == JobStatus::Ok);
        require_convolution<std::int8_t, std::int32_t>(cpu, shape);
    }
}

TEST_CASE("Sums of bytes wrap as two's complement and a float that is none voids the job") {
    Cpu cpu;
    constexpr std::uint32_t kDepth = 1U << 18;  // 2^18 * 2^14 = 2^32: exactly once round
    std::memset(cpu.at<std::byte>(0), 0x80, kDepth);
    std::memset(cpu.at<std::byte>(kB), 0x80, kDepth);
    *cpu.at<std::int32_t>(kC) = 7;
    const ProgramId wide = cpu.queue->load(product(1, 1, kDepth, StandardProgram::Types::I8I32));
    REQUIRE(cpu.run(cpu.job(wide, {{0, kDepth}, {kB, kDepth}}, {kC, 4})) == JobStatus::Ok);
    CHECK(*cpu.at<std::int32_t>(kC) == 0);

    const ProgramId floats = cpu.queue->load(product(1, 1, 2, StandardProgram::Types::F32F32));
    cpu.at<float>(0)[0] = 1;
    cpu.at<float>(0)[1] = std::numeric_limits<float>::infinity();
    cpu.at<float>(kB)[0] = 1;
    cpu.at<float>(kB)[1] = 1;
    CHECK(cpu.run(cpu.job(floats, {{0, 8}, {kB, 8}}, {kC, 4})) == JobStatus::NotFinite);
}

TEST_CASE("Sizes, alignment and shapes that do not fit are refused") {
    Cpu cpu;
    const ProgramId floats = cpu.queue->load(product(2, 2, 2, StandardProgram::Types::F32F32));
    CHECK(cpu.run(cpu.job(floats, {{0, 16}, {kB, 16}}, {kC, 16})) == JobStatus::Ok);
    CHECK(cpu.run(cpu.job(floats, {{0, 15}, {kB, 16}}, {kC, 16})) == JobStatus::Invalid);
    CHECK(cpu.run(cpu.job(floats, {{2, 16}, {kB, 16}}, {kC, 16})) == JobStatus::Invalid);
    CHECK(cpu.run(cpu.job(floats, {{0, 16}}, {kC, 16})) == JobStatus::Invalid);
    CHECK(cpu.run(cpu.job(floats, {{0, 16}, {kB, 16}}, {kC, 12})) == JobStatus::Invalid);
    CHECK_THROWS_AS(cpu.queue->load(product(0, 1, 1, StandardProgram::Types::I8I32)), Error);
    CHECK_THROWS_AS(cpu.queue->load(product(1U << 20, 1U << 20, 1, StandardProgram::Types::I8I32)), Error);
    CHECK_THROWS_AS(cpu.queue->load(convolution(2, 2, 1, 1, 3, 1, StandardProgram::Types::I8I32)), Error);
    CHECK_THROWS_AS(cpu.queue->load(convolution(3, 3, 1, 1, 3, 0, StandardProgram::Types::I8I32)), Error);
    CHECK_THROWS_AS(cpu.queue->load(product(1, 1, 1, static_cast<StandardProgram::Types>(9))), Error);
    CHECK_THROWS_AS(cpu.queue->load(VendorProgram{}), Error);
    CHECK_THROWS_AS(
        cpu.queue->import_buffer({.fd = cpu.memory.borrow(), .size_bytes = Cpu::kBytes + 1, .access = kAccessRead}),
        Error);
    CHECK_THROWS_AS(
        cpu.queue->import_buffer(
            {.fd = cpu.memory.borrow(), .offset_bytes = UINT64_MAX, .size_bytes = 2, .access = kAccessRead}),
        Error);
    CHECK_THROWS_AS(
        cpu.queue->import_buffer({.fd = cpu.memory.borrow(), .size_bytes = 4, .modifier = 5, .access = kAccessRead}),
        Error);
    CHECK_THROWS_AS(cpu.queue->import_buffer({.fd = -1, .size_bytes = 4, .access = kAccessRead}), std::system_error);
}

TEST_CASE("A Hard job overtakes a long one at its next segment, and neither's result changes") {
    Cpu cpu;
    std::mt19937 random(5);
    constexpr std::uint32_t kRows = 700;
    constexpr std::uint32_t kDepth = 1000;
    fill(cpu.at<std::int8_t>(0), kRows * kDepth, random);
    fill(cpu.at<std::int8_t>(kB), kDepth * kDepth, random);
    const ProgramId large = cpu.queue->load(product(kRows, kDepth, kDepth, StandardProgram::Types::I8I32));
    const ProgramId small = cpu.queue->load(product(1, 4, 4, StandardProgram::Types::I8I32));
    const AdmissionVerdict flow = cpu.queue->open_flow({JobClass::Hard, 10 * kMs, 10 * kMs, kMs, kMs, 0});
    REQUIRE(flow.flow != 0);
    const JobId slow =
        cpu.submit(cpu.job(large, {{0, kRows * kDepth}, {kB, kDepth * kDepth}}, {kC, kRows * kDepth * 4}));
    const JobId behind =
        cpu.submit(cpu.job(large, {{0, kRows * kDepth}, {kB, kDepth * kDepth}}, {kC, kRows * kDepth * 4}));
    std::vector<JobId> urgent;
    for (int i = 0; i < 5; ++i) {
        Job made = cpu.job(small, {{0, 4}, {kB, 16}}, {Cpu::kBytes - 64, 16});
        made.job_class = JobClass::Hard;
        made.flow = flow.flow;
        urgent.push_back(cpu.submit(std::move(made)));
        cpu.pump_until([&] { return cpu.told.count(urgent.back()) != 0; });
        CHECK(cpu.told[urgent.back()].status == JobStatus::Ok);
    }
    CHECK(cpu.told.count(slow) == 0);
    cpu.pump_until([&] { return cpu.told.count(slow) != 0 && cpu.told.count(behind) != 0; });
    CHECK(cpu.told[slow].status == JobStatus::Ok);
    const std::int8_t* const a = cpu.at<std::int8_t>(0);
    const std::int8_t* const b = cpu.at<std::int8_t>(kB);
    for (int check = 0; check < 300; ++check) {
        const std::size_t r = random() % kRows;
        const std::size_t c = random() % kDepth;
        std::int32_t sum = 0;
        for (std::size_t d = 0; d < kDepth; ++d) {
            sum += a[r * kDepth + d] * b[d * kDepth + c];
        }
        REQUIRE(cpu.at<std::int32_t>(kC)[r * kDepth + c] == sum);
    }
}

TEST_CASE("A running job ends at its next segment when it is cancelled, and writes nothing after") {
    Cpu cpu;
    const ProgramId endless = cpu.queue->load(product(1U << 10, 1U << 10, 1U << 10, StandardProgram::Types::I8I32));
    std::memset(cpu.at<std::byte>(kC), 0x55, 16);
    const Submitted job = cpu.queue->submit(cpu.job(endless, {{0, 1U << 20}, {kB, 1U << 20}}, {kC, 4U << 20}), true);
    REQUIRE(job.status == Status::Ok);
    cpu.queue->dispatch();
    cpu.pump_until([&] { return *cpu.at<volatile std::uint32_t>(kC) != 0x55555555U; });  // it runs
    REQUIRE(cpu.queue->cancel(job.id) == Status::Ok);
    cpu.pump_until([&] { return cpu.told.count(job.id) != 0; });
    CHECK(cpu.told[job.id].status == JobStatus::Cancelled);
    CHECK(job.fence->state() == fence::FenceState::DeviceLost);
    const std::vector<std::byte> after(cpu.at<std::byte>(kC), cpu.at<std::byte>(kC) + (4U << 20));
    ::poll(nullptr, 0, 10);
    CHECK(std::memcmp(after.data(), cpu.at<std::byte>(kC), after.size()) == 0);
}

TEST_CASE("A job that a dead device gave back gives the right result on the processor") {
    auto owned = std::make_unique<fake::Device>("npu");
    fake::Device& npu = *owned;
    Cpu cpu(std::move(owned));
    std::mt19937 random(9);
    fill(cpu.at<std::int8_t>(0), 64 * 64, random);
    fill(cpu.at<std::int8_t>(kB), 64 * 64, random);
    const ProgramId program = cpu.queue->load(product(64, 64, 64, StandardProgram::Types::I8I32));
    const Submitted job = cpu.queue->submit(cpu.job(program, {{0, 4096}, {kB, 4096}}, {kC, 4096 * 4}), true);
    cpu.pump_until([&] { return npu.held.size() == 1; });
    npu.die("firmware");
    cpu.pump_until([&] { return cpu.told.count(job.id) != 0; });
    CHECK(cpu.told[job.id].status == JobStatus::Ok);
    CHECK(cpu.told[job.id].device_index == 1);
    CHECK(job.fence->state() == fence::FenceState::Signalled);
    require_product<std::int8_t, std::int32_t>(cpu, 64, 64, 64);
}

TEST_CASE("A decoder's logits are the formulas', the same bits however it was cut and interrupted") {
    const support::RandomDecoderOptions shape{.layer_count = 3};
    const std::string path = model_file(shape, "queue_decoder");
    std::vector<std::uint32_t> tokens;
    std::mt19937 random(11);
    for (int i = 0; i < 45; ++i) {
        tokens.push_back(static_cast<std::uint32_t>(random() % 320));
    }
    constexpr std::size_t kRow = 320 * sizeof(float);
    std::vector<std::vector<float>> results;
    for (const std::int64_t segment_ns : {2 * kMs, std::int64_t{1}}) {  // whole passes together, or a layer at a time
        Cpu cpu(nullptr, {.segment_ns = segment_ns});
        const ProgramId program = cpu.queue->load(
            DecoderProgram{.path = path, .digest = {}, .weight_folder = {}, .tokens_max = 64, .logit_rows_max = 12});
        const ProgramId small = cpu.queue->load(product(1, 4, 4, StandardProgram::Types::I8I32));
        std::memcpy(cpu.at<std::byte>(0), tokens.data(), tokens.size() * 4);
        const JobId id = cpu.submit(cpu.job(program, {{0, tokens.size() * 4}}, {kC, 12 * kRow}));
        const JobId again =
            cpu.submit(cpu.job(program, {{0, 10 * 4}}, {kB, kRow}));  // another of the same program between
        for (int i = 0; i < 3; ++i) {
            static_cast<void>(cpu.run(cpu.job(small, {{0, 4}, {kB + 65536, 16}}, {Cpu::kBytes - 64, 16})));
        }
        cpu.pump_until([&] { return cpu.told.count(id) != 0 && cpu.told.count(again) != 0; });
        REQUIRE(cpu.loaded[program].first == JobStatus::Ok);
        REQUIRE(cpu.told[id].status == JobStatus::Ok);
        REQUIRE(cpu.told[again].status == JobStatus::Ok);
        results.emplace_back(cpu.at<float>(kC), cpu.at<float>(kC) + 12 * 320);
        results.back().insert(results.back().end(), cpu.at<float>(kB), cpu.at<float>(kB) + 320);

        // Ids that no vocabulary has, more tokens than the program takes, more rows than tokens.
        cpu.at<std::uint32_t>(0)[3] = 320;
        CHECK(cpu.run(cpu.job(program, {{0, 10 * 4}}, {kB, kRow})) == JobStatus::Invalid);
        CHECK(cpu.run(cpu.job(program, {{0, 65 * 4}}, {kB, kRow})) == JobStatus::Invalid);
        CHECK(cpu.run(cpu.job(program, {{0, 4}}, {kB, 2 * kRow})) == JobStatus::Invalid);
        CHECK(cpu.run(cpu.job(program, {{0, 6}}, {kB, kRow})) == JobStatus::Invalid);
    }
    CHECK(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)) == 0);
    const std::vector<std::byte> bytes = support::random_decoder(shape);
    const model::Gguf gguf = model::Gguf::parse(bytes, "reference");
    const auto near = [&](const std::vector<std::uint32_t>& text, const float* logits) {
        const std::vector<double> reference = support::reference_logits(model::read_decoder(gguf), text);
        double error = 0;
        double size = 0;
        for (std::size_t i = 0; i < reference.size(); ++i) {
            error += (reference[i] - logits[i]) * (reference[i] - logits[i]);
            size += reference[i] * reference[i];
        }
        return std::sqrt(error / size);  // activations are quantized to 8 bits in the engine alone
    };
    CHECK(near(tokens, results[0].data() + 11 * 320) < 0.05);
    CHECK(near({tokens.begin(), tokens.begin() + 34}, results[0].data()) < 0.05);
    CHECK(near({tokens.begin(), tokens.begin() + 10}, results[0].data() + 12 * 320) < 0.05);
    std::filesystem::remove(path);
}

TEST_CASE("What cannot be loaded says why, and a program may go while it is loaded") {
    const std::string path = model_file({}, "queue_model");
    {
        Cpu cpu;
        const ProgramId missing =
            cpu.queue->load(DecoderProgram{.path = "/nonexistent/model.gguf", .digest = {}, .weight_folder = {}});
        const ProgramId large =
            cpu.queue->load(DecoderProgram{.path = path, .digest = {}, .weight_folder = {}, .tokens_max = 1U << 20});
        cpu.pump_until([&] { return cpu.loaded.count(missing) != 0 && cpu.loaded.count(large) != 0; });
        CHECK(cpu.loaded[missing].first == JobStatus::Invalid);
        CHECK(cpu.loaded[missing].second.find("/nonexistent/model.gguf") != std::string::npos);
        CHECK(cpu.loaded[large].first != JobStatus::Ok);
        CHECK(cpu.run(cpu.job(missing, {{0, 4}}, {kB, 4})) == JobStatus::Unsupported);
        for (int i = 0; i < 5; ++i) {
            CHECK(cpu.queue->unload(
                cpu.queue->load(DecoderProgram{.path = path, .digest = {}, .weight_folder = {}, .tokens_max = 32})));
        }
        const ProgramId kept =
            cpu.queue->load(DecoderProgram{.path = path, .digest = {}, .weight_folder = {}, .tokens_max = 32});
        cpu.pump_until([&] { return cpu.loaded.count(kept) != 0; });
        CHECK(cpu.loaded[kept].first == JobStatus::Ok);
        CHECK(cpu.loaded.size() == 3);
    }
    std::filesystem::remove(path);
}

TEST_CASE("Small jobs on the processor allocate nothing and open nothing") {
    Cpu cpu;
    const ProgramId small = cpu.queue->load(product(1, 4, 4, StandardProgram::Types::I8I32));
    std::size_t ended = 0;
    REQUIRE(cpu.run(cpu.job(small, {{0, 4}, {kB, 16}}, {kC, 16})) == JobStatus::Ok);
    cpu.queue->on_completion = [&](const Completion& completion) {
        ended += completion.status == JobStatus::Ok ? 1 : 0;
    };
    Job made = cpu.job(small, {{0, 4}, {kB, 16}}, {kC, 16});
    const auto count_fds = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
    const auto descriptors = count_fds();
    const std::uint64_t before = hot_path::allocation_count();
    {
        const hot_path::Scope hot;
        for (std::size_t i = 0; i < 5000; ++i) {
            Job next;
            next.program = small;
            next.input_count = 2;
            next.output_count = 1;
            for (int b = 0; b < 2; ++b) {
                next.inputs[b].buffer = made.inputs[b].buffer;
                next.inputs[b].offset_bytes = made.inputs[b].offset_bytes;
                next.inputs[b].size_bytes = made.inputs[b].size_bytes;
            }
            next.outputs[0].buffer = made.outputs[0].buffer;
            next.outputs[0].offset_bytes = made.outputs[0].offset_bytes;
            next.outputs[0].size_bytes = made.outputs[0].size_bytes;
            static_cast<void>(cpu.queue->submit(std::move(next), true));
            while (ended <= i) {
                pollfd entry{cpu.queue->fd(), POLLIN, 0};
                ::poll(&entry, 1, 1000);
                cpu.queue->dispatch();
            }
        }
    }
    CHECK(ended == 5000);
    CHECK(hot_path::allocation_count() == before);  // of this thread and the device's
    CHECK(count_fds() == descriptors);
}
