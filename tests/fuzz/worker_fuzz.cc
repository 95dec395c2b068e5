// Fuzz target: what the daemon says to a worker: ToWorker messages in any order, to a worker whose device does nothing
// (tests/host_ir/null_device.h). Every message is answered.
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "hostir/v1/worker.pb.h"
#include "service/os/shared_memory.h"
#include "service/planner/pipeline.h"
#include "service/worker/worker.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/mutate_message.h"
#include "tests/fuzz/no_code.h"
#include "tests/fuzz/target.h"
#include "tests/host_ir/null_device.h"

namespace hir::fuzz {
namespace {

namespace pb = hostir::v1;

constexpr int64_t kRanks = 4;
constexpr int64_t kBytesMax = int64_t{1} << 20;

Kinds MessageKinds() {
  static const std::array<const google::protobuf::Message*, 1> kinds = {&pb::ToWorker::default_instance()};
  return kinds;
}

// With little memory.
class SmallDevice final : public device::Device {
 public:
  explicit SmallDevice(host::CallLog& log) : null_(log) {}
  std::string_view name() const override { return null_.name(); }
  Result<std::unique_ptr<device::Stream>> CreateStream() override { return null_.CreateStream(); }
  Result<std::unique_ptr<device::Event>> CreateEvent() override { return null_.CreateEvent(); }
  Result<std::unique_ptr<device::Allocation>> Allocate(int64_t bytes) override {
    if (bytes < 0) Found("a negative number of bytes is allocated");
    if (bytes > kBytesMax) return ResourceExhausted("device_bytes_max: out of memory");
    return null_.Allocate(bytes);
  }
  int64_t allocated_bytes() const override { return null_.allocated_bytes(); }
  int64_t memory_bytes_max() const override { return kBytesMax; }

 private:
  host::NullDevice null_;
};

class NoRendezvous final : public comm::Rendezvous {
 public:
  Status Publish(std::string_view, std::string_view) override { return {}; }
  Result<std::string> Get(std::string_view, base::Nanos) override { return std::string(); }
};

rank::Backends NullBackends(host::CallLog& log) {
  rank::Backends backends;
  backends.kind = "cpu";
  backends.make_device = [&log](const rank::DeviceOptions&) -> Result<std::unique_ptr<device::Device>> {
    return std::unique_ptr<device::Device>(std::make_unique<SmallDevice>(log));
  };
  backends.copy_from_host = [](device::Device&, device::Buffer, std::span<const std::byte>) { return Status(); };
  backends.copy_to_host = [](device::Device&, std::span<std::byte>, device::Buffer) { return Status(); };
  backends.make_communicator = [&log](const rank::CommOptions& options, comm::Rendezvous&,
                                      device::Device&) -> Result<std::unique_ptr<comm::Communicator>> {
    return std::unique_ptr<comm::Communicator>(std::make_unique<host::NullCommunicator>(log, options.size));
  };
  backends.load_kernels = [](std::span<const codegen::Artifact>,
                             device::Device&) -> Result<std::unique_ptr<device::KernelSource>> {
    return std::unique_ptr<device::KernelSource>(std::make_unique<host::NullKernels>());
  };
  backends.make_libraries = [](device::Device&, int) -> Result<std::unique_ptr<host::LibrarySource>> {
    return std::unique_ptr<host::LibrarySource>(std::make_unique<host::NullLibrary>());
  };
  return backends;
}

// The descriptors that go with a message: memory of the bytes that it names, where those are few.
void AddMemory(const pb::ToWorker& message, std::vector<base::Fd>& fds) {
  for (const auto* shards : {&message.bind().shards(), &message.fetch().shards()}) {
    for (const pb::DeviceShard& shard : *shards) {
      if (!shard.has_memory() || fds.size() >= 8) continue;
      const int64_t bytes = std::clamp<int64_t>(shard.bytes(), 1, 4096);
      auto memory = service::SharedMemory::Create(bytes);
      if (memory.ok()) fds.emplace_back(dup(memory->fd()));
    }
  }
  for (const pb::ToWorker& part : message.batch().messages()) AddMemory(part, fds);
}

// A daemon counts runs from one, and has none carried out that it has not bound: a worker ends of that.
void LimitRuns(pb::ToWorker& message) {
  constexpr int64_t kRunsMax = int64_t{1} << 40;
  if (message.has_execute()) {
    pb::Execute& execute = *message.mutable_execute();
    execute.set_run(std::clamp<int64_t>(execute.run(), 0, kRunsMax));
    execute.set_phase(pb::Execute::PHASE_ALL);
    execute.set_timeout_ms(std::clamp<int64_t>(execute.timeout_ms(), 0, 1000000000));
  }
  if (!message.has_batch()) return;
  for (pb::ToWorker& part : *message.mutable_batch()->mutable_messages()) LimitRuns(part);
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const std::string& text : Corpus("tests/corpus")) {
    pb::ProgramSource source;
    source.set_text(text);
    const auto plan = service::MakePlan(source, {.num_devices = kRanks, .backend = "cpu", .compile = NoCode});
    if (!plan.ok() || plan->ByteSizeLong() > 16384) continue;
    std::string& seed = seeds.emplace_back();
    pb::ToWorker hello, load, bind, execute, release, batch;
    hello.mutable_hello()->set_num_ranks(kRanks);
    hello.mutable_hello()->set_num_threads(1);
    load.mutable_load()->set_program(1);
    pb::Plan& of = *load.mutable_load()->mutable_plan();
    of = *plan;
    of.clear_explanation();
    of.clear_pools();
    pb::Execute& run = *execute.mutable_execute();
    run.set_run(1);
    run.set_program(1);
    const auto add = [&](int index, google::protobuf::RepeatedPtrField<pb::TensorArg>& args) {
      pb::DeviceShard& shard = *bind.mutable_bind()->add_shards();
      shard.set_id(bind.bind().shards_size());
      shard.set_bytes(4096);
      shard.set_has_memory(true);
      pb::TensorArg& arg = *args.Add();
      arg.set_index(index);
      for (int64_t rank = 0; rank < kRanks; ++rank) arg.add_shards(shard.id());
    };
    for (int i = 0; i < plan->inputs_size(); ++i) {
      if (!plan->inputs(i).scalar()) {
        add(i, *run.mutable_inputs());
      } else {
        run.add_scalars()->set_index(i);
      }
    }
    for (int i = 0; i < plan->outputs_size(); ++i) add(i, *run.mutable_outputs());
    for (const char* symbol : {"i0", "i1", "i2"}) {
      pb::Symbol& size = *run.add_symbols();
      size.set_name(symbol);
      size.set_value(4);
    }
    release.mutable_release()->add_shards(1);
    release.mutable_release()->add_programs(1);
    for (const pb::ToWorker* message : {&load, &bind, &execute}) *batch.mutable_batch()->add_messages() = *message;
    AddFrame(seed, 0, hello);
    if (seeds.size() % 2 == 0) {
      AddFrame(seed, 0, batch);
    } else {
      for (const pb::ToWorker* message : {&load, &bind, &execute}) AddFrame(seed, 0, *message);
    }
    AddFrame(seed, 0, release);
  }
  return seeds;
}

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<std::string> seeds = Seeds();
  const std::string& donor = seeds[static_cast<size_t>(prng.Below(std::ssize(seeds)))];
  return MutatedFrames(prng, input, donor, MessageKinds());
}

void RunOne(std::string_view input) {
  host::CallLog log;
  log.keep = false;
  NoRendezvous rendezvous;
  service::Worker worker({.rank = 1}, NullBackends(log));
  bool greeted = false;
  for (Frame& frame : FramesOf(input, MessageKinds())) {
    auto& message = static_cast<pb::ToWorker&>(*frame.message);
    // The first message, once: so says the protocol, and a worker exits with the daemon that does otherwise.
    if (message.has_hello() == greeted) continue;
    if (message.has_hello()) {
      greeted = true;
      message.mutable_hello()->set_num_threads(1);
      message.mutable_hello()->set_num_ranks(kRanks);
    }
    LimitRuns(message);
    service::Link::Request request;
    AddMemory(message, request.fds);
    request.message = std::move(message);
    const pb::FromWorker answer = worker.Handle(std::move(request), rendezvous);
    if (!answer.has_reply()) Found("a message is not answered");
    (void)worker.Dump();
  }
}

}  // namespace hir::fuzz
