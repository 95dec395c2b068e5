// Fuzz target: what workers say to the daemon: FromWorker messages, or bytes that are none, from ranks of two
// generations that nothing keeps to a protocol. Each frame is what a rank says (its flags: after that the daemon makes
// the next call; the rank goes). The daemon ends every call, with an error or without, and goes on.
#include <sys/socket.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "hostir/v1/worker.pb.h"
#include "service/os/channel.h"
#include "service/supervise/fleet.h"
#include "tests/fuzz/mutate_message.h"
#include "tests/fuzz/target.h"

namespace hir::fuzz {
namespace {

namespace pb = hostir::v1;
using std::chrono::milliseconds;

constexpr int64_t kRanks = 2;
constexpr int kNextCall = 1, kGoes = 2;

Kinds MessageKinds() {
  static const std::array<const google::protobuf::Message*, 2> kinds = {&pb::FromWorker::default_instance(),
                                                                        &pb::RendezvousGet::default_instance()};
  return kinds;
}

// The other ends of the daemon's sockets.
class Workers {
 public:
  explicit Workers(std::vector<Frame> frames) : frames_(std::move(frames)) {}

  // In place of a process. The latest kRanks of them are those of the mesh.
  Result<service::Process> Spawn(const base::Fd& inherited) {
    if (channels_.size() == static_cast<size_t>(kRanks)) channels_.clear();
    if (channels_.empty()) ++generation_;
    channels_.push_back(std::make_unique<service::Channel>(base::Fd(dup(inherited.get()))));
    if (channels_.size() == static_cast<size_t>(kRanks)) SayNext();
    return service::Process();
  }
  // What is said until the next call. Who has not answered by then goes, so that nobody is waited for; at the end all.
  void SayNext() {
    std::vector<bool> answered(channels_.size());
    for (bool next_call = false; next_ < frames_.size() && !next_call; ++next_) {
      const Frame& frame = frames_[next_];
      next_call = (frame.flags & kNextCall) != 0;
      const auto rank = static_cast<size_t>(RankOf(frame));
      if (rank >= channels_.size() || channels_[rank] == nullptr) continue;
      Say(*channels_[rank], frame);
      if ((frame.flags & kGoes) != 0) channels_[rank] = nullptr;
      answered[rank] = answered[rank] || IsReply(frame);
    }
    for (size_t rank = 0; rank < channels_.size(); ++rank) {
      if (!answered[rank] || next_ == frames_.size()) channels_[rank] = nullptr;
    }
  }
  bool more() const { return next_ < frames_.size(); }

 private:
  static int64_t RankOf(const Frame& frame) {
    return frame.kind == 0 ? static_cast<const pb::FromWorker&>(*frame.message).rank() & 1 : 0;
  }
  bool IsReply(const Frame& frame) const {
    if (frame.kind != 0) return false;
    const auto& message = static_cast<const pb::FromWorker&>(*frame.message);
    return message.has_reply() && message.generation() == generation_;
  }
  static void Say(service::Channel& channel, const Frame& frame) {
    // Bytes that may be no message of its.
    const std::string bytes = frame.kind == 0 ? frame.message->SerializePartialAsString()
                                              : static_cast<const pb::RendezvousGet&>(*frame.message).key();
    (void)channel.Send(bytes, {}, milliseconds(1)).ok();
  }

  std::vector<Frame> frames_;
  size_t next_ = 0;
  int64_t generation_ = 0;
  std::vector<std::unique_ptr<service::Channel>> channels_;
};

void Add(std::string& bytes, int64_t rank, const pb::FromWorker& message, int flags = 0, int64_t generation = 1) {
  pb::FromWorker of = message;
  of.set_rank(rank);
  of.set_generation(generation);
  AddFrame(bytes, 0, of, flags);
}

}  // namespace

std::vector<std::string> Seeds() {
  pb::FromWorker done, failed, poisoned, publish, get, dumped, measured;
  done.mutable_reply();
  failed.mutable_reply()->mutable_error()->set_code(static_cast<int>(Code::kInternal));
  failed.mutable_reply()->mutable_error()->set_message("out of paper");
  poisoned = failed;
  poisoned.mutable_reply()->set_poisoned(true);
  publish.mutable_rendezvous_publish()->set_key("ucx");
  publish.mutable_rendezvous_publish()->set_value("address");
  get.mutable_rendezvous_get()->set_key("ucx");
  dumped.mutable_dumped()->set_run(1);
  dumped.mutable_dumped()->set_where("allgather #1");
  measured = done;
  measured.mutable_reply()->mutable_measured()->add_times()->set_op("launch");
  std::vector<std::string> seeds(6);
  for (std::string& seed : seeds) {
    Add(seed, 0, publish);
    Add(seed, 1, get);
    Add(seed, 0, done);
    Add(seed, 1, done, kNextCall);
  }
  Add(seeds[1], 0, measured);
  Add(seeds[1], 1, measured, kNextCall);
  Add(seeds[1], 0, done);
  Add(seeds[1], 1, done, kNextCall);
  Add(seeds[2], 0, failed);
  Add(seeds[2], 1, done, kNextCall);
  Add(seeds[3], 1, poisoned);
  Add(seeds[3], 0, done, kNextCall);
  Add(seeds[3], 0, done, 0, 2);
  Add(seeds[3], 1, done, kNextCall, 2);
  Add(seeds[4], 0, done);
  Add(seeds[4], 1, dumped, kGoes);
  pb::RendezvousGet raw;
  raw.set_key("no message");
  AddFrame(seeds[5], 1, raw, kNextCall);
  return seeds;
}

std::string Mutated(base::Prng& prng, const std::string& input) {
  static const std::vector<std::string> seeds = Seeds();
  const std::string& donor = seeds[static_cast<size_t>(prng.Below(std::ssize(seeds)))];
  return MutatedFrames(prng, input, donor, MessageKinds());
}

void RunOne(std::string_view input) {
  Workers workers(FramesOf(input, MessageKinds()));
  service::FleetOptions options;
  options.devices = std::vector<std::string>(static_cast<size_t>(kRanks), "cpu:0");
  options.setup_timeout = milliseconds(20);
  options.spawn = [&](const base::Fd& inherited) { return workers.Spawn(inherited); };
  service::Fleet fleet(std::move(options));
  std::mutex mutex;
  for (int calls = 0; calls < 16 && workers.more(); ++calls) {
    if (!fleet.healthy()) {
      (void)fleet.Start().ok();
      continue;
    }
    workers.SayNext();
    if (calls % 4 == 3) {  // At rest.
      std::unique_lock lock(mutex);
      (void)fleet.Watch(-1, base::Nanos(0), lock);
      continue;
    }
    std::vector<std::vector<service::RankMessage>> messages(static_cast<size_t>(kRanks));
    for (auto& of_rank : messages) of_rank.emplace_back().message.mutable_execute()->set_run(calls);
    const auto waits = calls % 2 == 0 ? service::Ranks::Waits::kNobody : service::Ranks::Waits::kEachOther;
    const Status called = fleet.Call(std::move(messages), {milliseconds(20)}, "a run", waits);
    if (fleet.measured().size() != static_cast<size_t>(kRanks)) Found("measured of other ranks than there are");
    (void)called.ok();
  }
  (void)fleet.snapshot();
}

}  // namespace hir::fuzz
