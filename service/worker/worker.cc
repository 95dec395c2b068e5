#include "service/worker/worker.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "csrc/base/busy_wait.h"
#include "csrc/base/digest.h"
#include "csrc/base/text.h"
#include "host_ir/rank/measure_links.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

}  // namespace

pb::FromWorker Worker::Handle(Link::Request request, comm::Rendezvous& rendezvous) {
  const Status status = request.posted != nullptr ? Execute(*request.posted) : Do(request, rendezvous);
  pb::FromWorker answer;
  pb::Reply& reply = *answer.mutable_reply();
  reply.set_poisoned(poisoned_);
  if (measured_.ByteSizeLong() > 0) reply.mutable_measured()->Swap(&measured_);
  if (!status.ok()) {
    reply.mutable_error()->set_code(static_cast<int>(status.code()));
    reply.mutable_error()->set_message(std::string(status.message()));
  }
  return answer;
}

Status Worker::Do(Link::Request& request, comm::Rendezvous& rendezvous) {
  pb::ToWorker& message = request.message;
  switch (message.body_case()) {
    case pb::ToWorker::kHello: return Hello(message.hello(), rendezvous);
    case pb::ToWorker::kLoad: return Load(*message.mutable_load());
    case pb::ToWorker::kBind: {
      const Status bound = Bind(message.bind(), request.fds);
      // The daemon takes mapped shards for bound. A device may be full: then it releases them.
      poisoned_ |= !bound.ok() && !OwnMemory();
      return bound;
    }
    case pb::ToWorker::kFetch: return Fetch(message.fetch(), request.fds);
    case pb::ToWorker::kExecute: return Execute(message.execute());
    case pb::ToWorker::kRelease: return Release(message.release());
    case pb::ToWorker::kBatch: return DoAll(request, rendezvous);
    case pb::ToWorker::kDump:
    case pb::ToWorker::kRendezvousValue:
    case pb::ToWorker::kMakePlan:
    case pb::ToWorker::kProbe:
    case pb::ToWorker::BODY_NOT_SET: break;
  }
  return Internal(base::Cat("a worker has no use for message ", static_cast<int>(message.body_case())));
}

Status Worker::DoAll(Link::Request& request, comm::Rendezvous& rendezvous) {
  Status first;
  auto fds = std::make_move_iterator(request.fds.begin());
  const auto end = std::make_move_iterator(request.fds.end());
  for (pb::ToWorker& message : *request.message.mutable_batch()->mutable_messages()) {
    const auto& shards = message.bind().shards();
    const auto wanted =
        std::count_if(shards.begin(), shards.end(), [](const auto& shard) { return shard.has_memory(); });
    Link::Request part;
    part.message = std::move(message);
    for (auto i = wanted; i > 0 && fds != end; --i) part.fds.push_back(*fds++);
    const Status status = Do(part, rendezvous);
    if (first.ok()) first = status;
  }
  return first;
}

Status Worker::Hello(const pb::Hello& hello, comm::Rendezvous& rendezvous) {
  if (device_ != nullptr) return Internal("a second hello");  // Programs use what the first one made.
  const int num_threads = static_cast<int>(hello.num_threads());
  HIR_ASSIGN(device_, backends_.make_device({.rank = options_.rank,
                                             .ordinal = options_.ordinal,
                                             .num_threads = num_threads,
                                             .memory_bytes_max = options_.device_bytes_max}));
  HIR_ASSIGN(libraries_, backends_.make_libraries(*device_, num_threads));
  pool_ = std::make_unique<host::Pool>(*device_);
  for (int i = 0; i < rank::kStreams; ++i) {
    HIR_ASSIGN(auto stream, i == 1 ? device_->CreateUrgentStream() : device_->CreateStream());  // Of communications.
    streams_.push_back(stream.get());
    owned_streams_.push_back(std::move(stream));
  }
  if (hello.num_ranks() == 1) return {};
  const rank::CommOptions options = {.rank = options_.rank,
                                     .size = hello.num_ranks(),
                                     .absent = {hello.absent().begin(), hello.absent().end()},
                                     .generation = options_.generation,
                                     .setup_timeout = base::FromMs(hello.setup_timeout_ms()),
                                     .op_timeout = base::FromMs(hello.comm_timeout_ms()),
                                     .nvlink_multicast = options_.nvlink_multicast,
                                     .peer_memory = options_.peer_memory};
  HIR_ASSIGN(communicator_, backends_.make_communicator(options, rendezvous, *device_));
  {
    const std::scoped_lock lock(mutex_);
    watched_.communicator = communicator_.get();
  }
  const std::vector<int64_t> firsts(hello.nodes().begin(), hello.nodes().end());
  if (firsts.size() < 2 || std::ranges::count(firsts, options_.rank) == 0) return {};
  HIR_ASSIGN(const std::vector<rank::Link> links,
             rank::MeasureLinks(backends_, *device_, *communicator_, firsts, options.op_timeout));
  for (const rank::Link& link : links) {
    pb::NodeLink& told = *measured_.add_links();
    told.set_message_us(link.message_seconds * 1e6);
    told.set_bytes_per_us(link.bytes_per_second * 1e-6);
  }
  return {};
}

Status Worker::Load(pb::Load& load) {
  if (options_.damages_plans) load.mutable_plan()->mutable_host_program()->append(" ");
  // Before anything is collective: ranks with different programs would wait for one another, or exchange what is not
  // meant for each other.
  if (const std::string digest = base::Digest(load.plan().SerializeAsString()); digest != load.plan_digest()) {
    poisoned_ = true;
    return Internal(base::Cat("the plan of ", load.plan().name(), " that it loads has the digest ", digest,
                              ", the one that all ranks were sent ", load.plan_digest()));
  }
  std::vector<codegen::Artifact> artifacts;
  for (const pb::Artifact& artifact : load.plan().artifacts()) {
    if (artifact.backend() != backends_.kind) {
      return InvalidArgument(base::Cat("a ", backends_.kind, " worker cannot load code for ", artifact.backend()));
    }
    artifacts.push_back({artifact.code(), {artifact.kernels().begin(), artifact.kernels().end()}});
  }
  HIR_ASSIGN(auto kernels, backends_.load_kernels(artifacts, *device_));
  host::EvaluatorOptions options;
  options.rank = options_.rank;
  options.device = device_.get();
  options.streams = streams_;
  options.libraries = libraries_.get();
  options.communicator = communicator_.get();
  options.pool = pool_.get();
  HIR_ASSIGN(programs_[load.program()], LoadedProgram::Load(load.plan(), options, std::move(kernels)));
  return {};
}

Status Worker::Bind(const pb::Bind& bind, std::vector<base::Fd>& fds) {
  size_t next = 0;
  for (const pb::DeviceShard& shard : bind.shards()) {
    if (shard.bytes() < 0) return Internal(base::Cat("shard ", shard.id(), " has ", shard.bytes(), " bytes"));
    Shard bound;
    if (shard.within() != 0) {
      HIR_ASSIGN(const device::Buffer whole, BufferOf(shard.within()));
      if (shard.offset() < 0 || shard.offset() > whole.bytes - shard.bytes()) {
        return Internal(base::Cat("shard ", shard.id(), " has bytes from ", shard.offset(), " on, ", shard.bytes(),
                                  " of them, of shard ", shard.within(), ", which has ", whole.bytes));
      }
      bound.part = whole.Slice(shard.offset(), shard.bytes());
      if (shard.exported()) {
        if (next == fds.size()) return Internal("fewer descriptors than shards");
        HIR_TRY(CopyExported(bound.part, std::move(fds[next++]), rank::CopyWay::kFromExported));
      }
      shards_[shard.id()] = std::move(bound);
      continue;
    }
    if (shard.lent()) {
      if (next == fds.size()) return Internal("fewer descriptors than shards");
      base::Fd lent = std::move(fds[next++]);
      if (backends_.map_exported) {
        HIR_ASSIGN(bound.on_device, backends_.map_exported(*device_, lent.get(), shard.bytes()));
      } else {
        HIR_ASSIGN(bound.mapped, SharedMemory::Map(std::move(lent), shard.bytes()));
      }
      shards_[shard.id()] = std::move(bound);
      continue;
    }
    if (shard.exported()) {
      if (next == fds.size()) return Internal("fewer descriptors than shards");
      HIR_ASSIGN(bound.on_device, device_->Allocate(shard.bytes()));
      HIR_TRY(CopyExported(bound.on_device->buffer(), std::move(fds[next++]), rank::CopyWay::kFromExported));
      shards_[shard.id()] = std::move(bound);
      continue;
    }
    if (shard.has_memory()) {
      if (next == fds.size()) return Internal("fewer descriptors than shards");
      HIR_ASSIGN(bound.mapped, SharedMemory::Map(std::move(fds[next++]), shard.bytes()));
    }
    if (OwnMemory()) {
      HIR_ASSIGN(bound.on_device, device_->Allocate(shard.bytes()));
      const SharedMemory from = std::exchange(bound.mapped, SharedMemory());
      if (shard.has_memory()) {
        HIR_TRY(backends_.copy_from_host(*device_, bound.on_device->buffer(),
                                         {from.data(), static_cast<size_t>(from.bytes())}));
      }
    }
    shards_[shard.id()] = std::move(bound);
  }
  return {};
}

Status Worker::Fetch(const pb::Fetch& fetch, std::vector<base::Fd>& fds) {
  size_t next = 0;
  for (const pb::DeviceShard& shard : fetch.shards()) {
    if (next == fds.size()) return Internal("fewer descriptors than shards");
    HIR_ASSIGN(const device::Buffer buffer, BufferOf(shard.id()));
    if (shard.exported()) {
      HIR_TRY(CopyExported(buffer, std::move(fds[next++]), rank::CopyWay::kToExported));
      continue;
    }
    HIR_ASSIGN(const SharedMemory to, SharedMemory::Map(std::move(fds[next++]), shard.bytes()));
    if (buffer.bytes != to.bytes()) {
      return Internal(base::Cat("shard ", shard.id(), " has ", buffer.bytes, " bytes, not ", to.bytes()));
    }
    HIR_TRY(backends_.copy_to_host(*device_, {to.data(), static_cast<size_t>(to.bytes())}, buffer));
  }
  return {};
}

Status Worker::CopyExported(device::Buffer shard, base::Fd exported, rank::CopyWay way) const {
  if (backends_.copy_exported) return backends_.copy_exported(*device_, shard, exported.get(), way);
  HIR_ASSIGN(const SharedMemory memory, SharedMemory::Map(std::move(exported), shard.bytes));
  const std::span<std::byte> bytes(memory.data(), static_cast<size_t>(memory.bytes()));
  return way == rank::CopyWay::kFromExported ? backends_.copy_from_host(*device_, shard, bytes)
                                             : backends_.copy_to_host(*device_, bytes, shard);
}

Result<device::Buffer> Worker::BufferOf(int64_t shard) const {
  const auto found = shards_.find(shard);
  if (found == shards_.end()) return Internal(base::Cat("shard ", shard, " is not bound"));
  if (found->second.on_device != nullptr) return found->second.on_device->buffer();
  if (found->second.part.data != nullptr) return found->second.part;
  return device::Buffer{found->second.mapped.data(), found->second.mapped.bytes()};
}

Status Worker::BindRun(const pb::Execute& execute, LoadedProgram& program) {
  const auto memory = [this](int64_t shard) { return BufferOf(shard); };
  Status bound = program.Bind(execute, memory);
  if (bound.code() != Code::kResourceExhausted) return bound;
  // The pool keeps what it has until it has more, and bindings keep it longer: together they may be too much where what
  // is wanted alone is not. No run is queued that uses it.
  for (const auto& [number, loaded] : programs_) {
    if (loaded != nullptr) loaded->Unbind();
  }
  pool_->Release();
  return program.Bind(execute, memory);
}

Status Worker::Execute(const pb::Execute& execute) {
  base::BusyWait::OfProcess().set_clients_wait(execute.clients_wait());
  const auto program = programs_.find(execute.program());
  if (program == programs_.end() || program->second == nullptr) {
    return {Code::kFailedPrecondition, base::Cat("program ", execute.program(), " is not loaded")};
  }
  if (execute.phase() != pb::Execute::PHASE_RUN) {
    HIR_TRY(BindRun(execute, *program->second));
  }
  if (execute.phase() == pb::Execute::PHASE_BIND) return {};
  const auto watch = [&](int64_t run, const LoadedProgram* running) {
    const std::scoped_lock lock(mutex_);
    watched_.run = run;
    watched_.program = running;
  };
  watch(execute.run(), program->second.get());
  bool started = false;
  const Status status = program->second->Run(execute, started, measured_);
  if (execute.profile() || execute.timeline()) measured_.set_traceparent(execute.traceparent());
  poisoned_ |= started && !status.ok();
  watch(0, nullptr);
  return status;
}

Status Worker::Release(const pb::Release& release) {
  for (const int64_t shard : release.shards()) shards_.erase(shard);
  for (const int64_t program : release.programs()) programs_.erase(program);
  return {};
}

pb::Dumped Worker::Dump() {
  const std::scoped_lock lock(mutex_);
  pb::Dumped dumped;
  dumped.set_run(watched_.run);
  dumped.set_comm_entered(-1);
  dumped.set_comm_left(-1);
  if (watched_.program == nullptr) return dumped;
  const comm::CommProgress progress =
      watched_.communicator == nullptr ? comm::CommProgress() : watched_.communicator->Progress();
  const int64_t base = watched_.run * LoadedProgram::kSeqsPerRun;  // What is below belongs to runs before.
  dumped.set_comm_entered(std::max<int64_t>(-1, progress.entered - base));
  dumped.set_comm_left(std::max<int64_t>(-1, progress.left - base));
  dumped.set_where(watched_.program->NameOf(dumped.comm_entered()));
  dumped.set_next(watched_.program->NextAfter(dumped.comm_left()));
  return dumped;
}

}  // namespace hir::service
