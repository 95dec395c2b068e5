// Engine: what the daemon can do, without a wire. Requests of all clients meet here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "csrc/base/busy_wait.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "host_ir/predict/rates.h"
#include "hostir/v1/plan.pb.h"
#include "service/engine/communications.h"
#include "service/engine/limits.h"
#include "service/engine/node_transfer.h"
#include "service/engine/program.h"
#include "service/engine/program_cache.h"
#include "service/engine/run_times.h"
#include "service/engine/sequencer.h"
#include "service/engine/transfer.h"
#include "service/metrics/metrics.h"
#include "service/os/affinity.h"
#include "service/os/wakeup.h"
#include "service/store/store.h"
#include "service/supervise/devices.h"
#include "service/supervise/fleet.h"

namespace hir::service {

struct EngineOptions {
  std::string worker_path;
  std::vector<std::string> worker_args = {};
  Devices devices = {};
  int64_t threads_per_rank = 1;
  std::vector<Cores> cores = {};  // As of FleetOptions.
  base::BusyWait::Mode busy_wait = base::BusyWait::Mode::kOff;
  Limits limits = {};

  std::optional<host::Rates> rates = {};  // Of the devices, where somebody measured them.
  std::vector<StoreNode> nodes = {};      // Of a cluster.
  // Left by a daemon before, and kept for one after.
  Inheritance inheritance = {};
  std::shared_ptr<Journal> journal = {};
  // A mesh that cannot be started with the rest is started when it can be: its nodes come and go.
  bool starts_later = false;

  // Makes what carries runs out, in place of a Fleet: for tests. Null: a Fleet of worker_path.
  std::function<std::unique_ptr<Ranks>()> make_ranks = {};

  int64_t num_devices() const { return devices.size(); }
};

// The worker processes of `options`.
FleetOptions FleetOf(const EngineOptions& options);

// Thread-safe. Callbacks are called once, on the calling thread or one of the engine's; they must not block. When one
// is called, nothing but its arguments and handles holds a tensor on its behalf: who frees those has freed the memory.
class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();

  // Starts workers and planner; returns when the mesh serves, or with why it does not. Without devices there is no
  // mesh: whatever needs one is refused with the reason.
  Status Start();
  // From now on new work is refused with kUnavailable; returns when the old is done, or at `deadline`.
  void Drain(base::Nanos deadline);
  // Ends what is under way, and all that comes later, with kUnavailable; returns when it is over.
  // `why`: instead of the shutdown that it is.
  void Stop(const Status& why = {});

  // `principal`: who shares turns as one, however many sessions it has.
  // `lease_ms`: how long it outlives its client's connection.
  Result<std::string> OpenSession(std::string principal = {}, int64_t lease_ms = 0);
  // Calls `done` when a later daemon would find what was done before: the sessions with a lease, the names, the nodes
  // that are drained; at once where none comes. As of Journal.
  void WhenKept(std::function<void(const Status&)> done);
  // Its queued runs are not carried out, what it alone waits for is not planned; its handles are freed.
  void CloseSession(const std::string& session);
  Status CheckSession(const std::string& session) const { return store_.CheckSession(session); }
  std::string PrincipalOf(const std::string& session) const { return store_.PrincipalOf(session); }

  using CompileDone = std::function<void(Result<std::shared_ptr<const Program>>)>;
  // `request`, here and below: the number that the log knows the request by. `progress`: as of ProgramCache::Get.
  // Errors: ProgramBytes'; CheckProgram's; ProgramCache::Get's.
  void Compile(const std::string& session, const ::hostir::v1::ProgramSource& source, CompileDone done,
               int64_t request = 0, ProgramCache::Progress progress = {});
  // The program's plan for `sizes`, all of its sizes. Errors: kInvalidArgument; ProgramCache::GetFor's.
  void PlanFor(const std::string& session, const std::shared_ptr<const Program>& program, const Sizes& sizes,
               CompileDone done, int64_t request = 0, ProgramCache::Progress progress = {});

  struct Named {
    std::string handle;
    std::shared_ptr<Tensor> tensor;
    bool is_inputs = false;  // The handle is that of the input in whose memory it is made: its owner has it already.
  };
  using RunArg = std::variant<std::string, double, int64_t, bool>;  // A handle, or a number.
  struct RunRequest {
    std::string session;
    std::string program_id;
    std::vector<RunArg> args;
    int64_t timeout_ms = 0;   // 0: run_timeout_ms.
    int64_t deadline_ms = 0;  // Since `came`; 0: there is none.
    base::Nanos came = base::Clock::Steady().Now();
    // When the run is over, with the time since its turn; may be null.
    std::function<void(const Status&, base::Nanos)> done = {};
    int64_t request = 0;
    std::shared_ptr<::hostir::v1::RunProfile> profile = {};  // As of RunJob, as the next.
    std::shared_ptr<std::string> timeline = {};
    std::string trace = {};         // As of RunJob.
    std::vector<int> brought = {};  // Arguments whose handles are the caller's to free: no output gets one.
    bool keeps_inputs = false;      // Inputs in whose memory nothing is made are not consumed.
  };
  struct Accepted {
    int64_t run = 0;
    std::vector<Named> outputs;
  };
  // Errors: kInvalidArgument, kNotFound, kFailedPrecondition for program and arguments, with both sides of what does
  //         not fit; kResourceExhausted naming a limit; kUnavailable when draining. Nothing is left of it, then.
  Result<Accepted> Run(RunRequest request);
  // As Sequencer::CancelRun, of the session. Errors: kFailedPrecondition: no such session; kNotFound: there was no such
  // run of any.
  Result<Sequencer::Cancelled> Cancel(const std::string& session, int64_t run, std::string_view who);
  // Nobody will ever name the outputs of this run: it is not carried out if its turn has not come.
  void TakeBack(const std::string& session, int64_t run) {
    (void)sequencer_.TakeBack(OwnerOf(session), run, "its client gave it up");
  }
  // The times of runs that went well, and were not measured op by op. `sizes`: all of the program's.
  std::optional<RunTimes::Taken> TimesOf(const Program& program, const Sizes& sizes) const {
    return run_times_->Find(program.number(), sizes);
  }
  // For who waits for the end of a run that was just accepted, and holds no lock of its own: looks for it a moment,
  // where that is faster; `done` may be called on this thread.
  void LookForEnd(int64_t run) { sequencer_.LookForEnd(run); }
  // Calls `then` when Run(request) finds a plan for the sizes of its arguments, or with why there is none.
  void WhenPlanned(const RunRequest& request, std::function<void(const Status&)> then,
                   ProgramCache::Progress progress = {});

  // `program_id` empty: `spec` says it all; else it is the input `index` of that program.
  Result<std::unique_ptr<Upload>> BeginUpload(const std::string& session, TensorSpec spec,
                                              const std::vector<bool>& sent_once, std::string_view program_id,
                                              int index);
  // The same, past the host; `lends` as of DeviceTransfer::In.
  Result<std::unique_ptr<DeviceTransfer>> BeginDeviceUpload(const std::string& session, TensorSpec spec,
                                                            const std::vector<bool>& sent_once,
                                                            std::string_view program_id, int index, bool lends);
  // `done` is called when the tensor is ready, with its bytes, or with what poisoned it; never, when `subscriptions`
  // end before. Without `device`: all of it.
  void BeginDownload(const std::string& session, const std::string& handle, std::optional<int64_t> device,
                     Subscriptions& subscriptions, std::function<void(Result<std::unique_ptr<Download>>)> done);
  // The same, past the host. kFailedPrecondition: its elements are in the host's memory.
  void BeginDeviceDownload(const std::string& session, const std::string& handle, std::optional<int64_t> device,
                           Subscriptions& subscriptions,
                           std::function<void(Result<std::unique_ptr<DeviceTransfer>>)> done);
  // Has the ranks copy between a tensor and the memory that was offered. `done` gets a new tensor, or after a download
  // none; on any thread.
  void Copy(const std::string& session, DeviceTransfer& transfer, std::function<void(Result<Named>)> done);
  // Whether nodes keep shards, which clients may write and read there.
  bool at_nodes() const { return !options_.nodes.empty() && options_.devices.kind == "cpu"; }
  // As BeginUpload and BeginDownload, past this daemon: `done` gets a transfer whose tickets are good.
  // Errors: as of those; NodeTransfer's; Ranks::Ask's; kResourceExhausted naming node_transfers_max.
  using NodeTransferDone = std::function<void(Result<std::unique_ptr<NodeTransfer>>)>;
  void BeginNodeUpload(const std::string& session, TensorSpec spec, const std::vector<bool>& sent_once,
                       std::string_view program_id, int index, NodeTransferDone done);
  void BeginNodeDownload(const std::string& session, const std::string& handle, std::optional<int64_t> device,
                         Subscriptions& subscriptions, NodeTransferDone done);
  // The tensor that a client has written at nodes. Errors: NodeTransfer::CheckWritten's; AddHandle's.
  Result<Named> Commit(const std::string& session, const NodeTransfer& transfer, std::span<const std::string> receipts);
  Result<std::shared_ptr<Tensor>> Find(const std::string& session, const std::string& handle) const;
  // `done` is called when all are ready or poisoned, or when `subscriptions` end before.
  void WhenSettled(std::vector<std::shared_ptr<Tensor>> tensors, Subscriptions& subscriptions,
                   std::function<void()> done);
  // As TensorStore::Free.
  Result<TensorStore::Freed> Free(const std::string& session, std::span<const std::string> handles,
                                  bool those_there = false);

  // As TensorStore's.
  Status Publish(const std::string& session, const std::string& handle, const std::string& name, bool everyone) {
    return store_.Publish(session, handle, name, everyone);
  }
  // Errors: as TensorStore's; kNotFound: no such program.
  Status PublishProgram(const std::string& session, const std::string& program_id, const std::string& name,
                        bool everyone);
  // `done` gets what has the name: the program, planned if need be, or the tensor, once the run that makes it is over;
  // it is not called where `subscriptions` end before. So a run reads what its session's runs make alone: another's may
  // have a later turn.
  struct Attached {
    std::string handle;
    std::shared_ptr<Tensor> tensor;  // Or, null:
    std::shared_ptr<const Program> program;
  };
  void Attach(const std::string& session, const std::string& owner, const std::string& name,
              Subscriptions& subscriptions, std::function<void(Result<Attached>)> done, int64_t request = 0,
              ProgramCache::Progress progress = {});
  Status Withdraw(const std::string& session, const std::string& name) { return store_.Withdraw(session, name); }
  Result<std::vector<TensorStore::Named>> Names(const std::string& session) const { return store_.Names(session); }

  // A node of the cluster, by its number or address, is to have no part in runs, or to have one again. Its address.
  // Errors: as of Ranks::SetDrained; kNotFound: none is called so.
  Result<std::string> SetDrained(const std::string& node, bool drained);

  struct Report {
    Ranks::Snapshot mesh;
    std::optional<Sequencer::UnderWay> under_way = {};
    std::vector<int64_t> planner_pids = {};  // The first planner's first; 0: it is being started.
    int64_t tensor_bytes = 0;
    int64_t recycled_bytes = 0;
    int64_t tensors = 0;
    int64_t sessions = 0;
    int64_t programs = 0;
    int64_t plans = 0;
    int64_t runs = 0;       // Accepted.
    int64_t runs_over = 0;  // Of these.
    int64_t queued_plans = 0;
    int64_t queued_runs = 0;
    bool draining = false;  // New work is refused.
    int64_t staging_bytes = 0;
    std::map<std::string, int64_t> sessions_of = {};     // By principal.
    std::map<std::string, int64_t> queued_runs_of = {};  // By principal: those that have some.
  };
  Report report() const;
  std::vector<ProgramCache::Cached> programs() const { return programs_.Latest(); }
  // As of Fleet: whether the mesh serves. Without devices there is none.
  void OnHealth(std::function<void(bool)> heard) { sequencer_.OnHealth(std::move(heard)); }
  const EngineOptions& options() const { return options_; }
  const std::string& id() const { return id_; }  // Random.
  // Counts of all that has happened here; requests are counted by who serves them.
  Metrics& metrics() { return *metrics_; }
  const Metrics& metrics() const { return *metrics_; }

 private:
  Owner OwnerOf(const std::string& session) const { return {store_.PrincipalOf(session), session}; }
  // OK, or why nothing can run here.
  Status CheckDevices() const;
  Status Look(const RunRequest& request, const Program& program, RunJob& job) const;
  // Errors: kInvalidArgument, kResourceExhausted naming run_timeout_ms.
  Result<TimeLimit> TimeOf(const RunRequest& request) const;
  // The spec that an upload stores; as of BeginUpload.
  Result<TensorSpec> SpecOf(TensorSpec spec, std::string_view program_id, int index);
  // Errors: kInvalidArgument; kDeadlineExceeded.
  static Result<RunDeadline> DeadlineOf(const RunRequest& request, const Program& program);
  void OpenDownload(const std::string& session, std::shared_ptr<Tensor> tensor, std::optional<int64_t> device,
                    std::function<void(Result<std::unique_ptr<Download>>)> done);
  void Grant(const std::string& session, std::unique_ptr<NodeTransfer> transfer, NodeTransferDone done);
  std::function<void(const Status&, base::Nanos)> Timed(std::function<void(const Status&, base::Nanos)> done,
                                                        const RunJob& job) const;
  // The inputs of an accepted run that its outputs replace.
  struct Replaced {
    std::vector<std::string> consumed;                // Handles.
    std::vector<std::pair<size_t, size_t>> in_place;  // Outputs, and the inputs in whose memory they are made.
  };
  Status MakeOutputs(const RunRequest& request, RunJob& job, Accepted& accepted, Replaced& replaced);
  // In the memory of the input that it takes over; null: that has to stay, or to go.
  std::shared_ptr<Tensor> MakeInPlace(const RunRequest& request, const RunJob& job, size_t output);

  const EngineOptions options_;
  const std::string id_ = RandomId();
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  const std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();  // Of the sequencer.
  const std::shared_ptr<ReleasedShards> released_;
  TensorStore store_;  // Before all that may hold tensors.
  ProgramCache programs_;
  const std::shared_ptr<RunTimes> run_times_ = std::make_shared<RunTimes>();  // Runs that end late hold it.
  CommunicationBytes communication_bytes_{*metrics_};
  Sequencer sequencer_;
  SessionSlots node_transfers_{options_.limits.node_transfers_max};
  std::mutex accepting_;  // Runs are accepted one at a time: the order of handles is the order of the sequence.
  std::atomic<int64_t> runs_ = 0;
  std::atomic<bool> draining_ = false;
};

}  // namespace hir::service
