// Sequencer: the one order of everything that ranks do, and the thread that gives it to them. A run that finds nothing
// before it, and needs no more than to be carried out, is given to them by the thread that posts it: the other one only
// hears that it is over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "service/engine/communications.h"
#include "service/engine/early_ends.h"
#include "service/engine/fair_queue.h"
#include "service/engine/program.h"
#include "service/metrics/metrics.h"
#include "service/os/wakeup.h"
#include "service/store/tensor.h"
#include "service/supervise/ranks.h"

namespace hir::service {

// A run that was accepted: everything is checked, the outputs have memory.
struct RunJob {
  Owner owner = {};
  int64_t run = 0;
  int64_t request = 0;  // That asked for it: for the log.
  std::shared_ptr<const Program> program;
  std::vector<std::shared_ptr<Tensor>> inputs;  // Null for a number.
  std::vector<double> float_scalars;            // One per input; the two are each the nearest to the other.
  std::vector<int64_t> int_scalars;
  std::vector<std::shared_ptr<Tensor>> outputs;  // Settled when the run is over; null for what is another's.
  Sizes sizes;
  TimeLimit timeout = {};
  RunDeadline deadline = {};
  base::Nanos posted = {};  // When it came; Post's.
  base::Nanos took = {};    // From its turn to its end.
  std::string trace = {};   // The client's trace context (csrc/base/traceparent.h); empty: there is none.
  std::shared_ptr<const Communications> communications = {};  // Null: it has none.
  // Where set, the run is a profile: filled before `done` of a run that went well.
  std::shared_ptr<::hostir::v1::RunProfile> profile = {};
  std::shared_ptr<std::string> timeline = {};  // The same for a timeline. Not both.
  bool is_measured() const { return profile != nullptr || timeline != nullptr; }
  // Called once when it is over, with `took`, on any thread, when nothing else here holds a tensor; may be null.
  std::function<void(const Status&, base::Nanos)> done;
};

// A copy of what only devices have, of a tensor that was ready.
struct FetchJob {
  Owner owner = {};
  std::shared_ptr<Tensor> tensor;
  std::shared_ptr<HostShards> into = {};    // The shards with memory are wanted. Null:
  std::vector<base::Fd> into_devices = {};  // As of StoreJob; those with a descriptor are.
  // Called once, when nothing else here holds the two.
  std::function<void(const Status&)> done = {};
};

// A copy into a tensor of which nobody has heard, and which is ready when it is done.
struct StoreJob {
  Owner owner = {};
  std::shared_ptr<Tensor> tensor;
  // Memory of devices that a client exported, by the shards' positions; none of shards that lie in memory it has lent.
  std::vector<base::Fd> from_devices;
  bool lends = false;  // It is the tensor's from now on, in place of a copy.
  // Called once, when nothing else here holds the two.
  std::function<void(const Status&)> done = {};
};

// Threads: Post, Cancel, CancelRun, Drain, snapshot from any.
class Sequencer {
 public:
  struct Options {
    int64_t queued_runs_max = 1024;                        // Of one session.
    bool on_devices = false;                               // Tensors live in the ranks' memory.
    TimeLimit copy_timeout = {std::chrono::seconds(600)};  // Of one tensor's elements, to or from devices.
    base::Nanos cancel_grace = std::chrono::seconds(1);    // As of EarlyEnds.
    std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
    // The time of the latest run like this one, where there was one; may be null.
    std::function<std::optional<base::Nanos>(const RunJob&)> usual = {};
    bool starts_later = false;  // Where the ranks cannot be started with the rest, they are when they can be.
  };
  // `gone` gives the numbers of programs that no job holds any more, which ranks drop with the next turn; it is called
  // under the sequencer's lock.
  // `wakeup` is signalled when `released` has something.
  Sequencer(std::unique_ptr<Ranks> ranks, Options options, std::shared_ptr<Wakeup> wakeup,
            std::shared_ptr<ReleasedShards> released, std::function<std::vector<int64_t>()> gone);
  // Stops, and ends the ranks.
  ~Sequencer();

  // These are where the ranks will be, which have been told of none. Before Start.
  void Inherit(const std::vector<std::shared_ptr<Tensor>>& tensors);
  // Starts a thread that serves; returns when the ranks are connected, or with why not.
  Status Start();
  // Starts the ranks, says how that went, and if well carries out what is posted, until Stop. In place of Start: on the
  // calling thread, which on simulated ranks is the only one.
  void Serve(const std::function<void(const Status&)>& started);
  // The job is next after those of its session posted before; between sessions turns are fair.
  // Errors: kResourceExhausted naming queued_runs_max; nothing was queued.
  using Job = std::variant<RunJob, FetchJob, StoreJob>;
  Status Post(Job job);
  // The session has ended: what of it is queued ends with `cause`, uncarried out. What is under way goes on.
  void Cancel(const Owner& owner, const Status& cause);
  // The owner does not want one of its runs any longer; `who` for the cause: "its client (uid:1000) cancelled it". A
  // queued one is over when this returns. The ranks carry theirs on, and if it has not ended by itself when it has had
  // cancel_grace since its turn, it ends with the mesh. One that is over stays as it is.
  enum class Cancelled { kTakenBack, kUnderWay, kOver };
  Cancelled CancelRun(const Owner& owner, int64_t run, std::string_view who);
  // The same, of a queued run alone; whether it was one.
  bool TakeBack(const Owner& owner, int64_t run, std::string_view who);
  // Looks a moment for the end of a run that Post has begun, where the machine has a core for it, and concludes it
  // before the thread would have woken: `done` is called on this one. Elsewhere, or when it takes longer, nothing.
  void LookForEnd(int64_t run);
  // Waits until nothing is queued or under way; false after `timeout`.
  bool Drain(base::Nanos timeout);

  // Poisons what is under way and what is queued with `cause`; later jobs are refused. Not from two threads at once.
  void Stop(const Status& cause);

  Ranks::Snapshot snapshot() const { return ranks_->snapshot(); }
  Status SetDrained(int64_t node, bool drained) { return ranks_->SetDrained(node, drained); }
  void OnHealth(std::function<void(bool)> heard) { ranks_->OnHealth(std::move(heard)); }
  // As Ranks::Ask.
  void Ask(std::vector<Ticket> tickets, Ranks::Granted granted) { ranks_->Ask(std::move(tickets), std::move(granted)); }
  // The memory of `tensor` is where the ranks are, or will be, though no job was told of it. Any thread; before Ask.
  void Keep(const std::shared_ptr<Tensor>& tensor);
  // Where the ranks are in a job that takes longer than a second: they are asked each second.
  struct UnderWay {
    std::string what;     // "run 7 of mlp"
    int64_t run = 0;      // 0: it is none.
    int64_t request = 0;  // As of RunJob.
    base::Nanos since_its_turn = {};
    std::optional<base::Nanos> usual = {};
    bool slow = false;  // It takes several times as long as usual.
    std::string where;
  };
  std::optional<UnderWay> under_way_long() const;
  int64_t num_queued() const;
  std::map<std::string, int64_t> queued_by_principal() const;  // Those that have some.
  int64_t num_over() const { return num_over_; }               // Runs that were posted, done or failed.

 private:
  // Where the one order is. The thread is the one that serves.
  enum class State {
    kDeciding,   // The thread decides what is next, or the mesh heals.
    kWorking,    // The thread carries a job out.
    kAsleep,     // The thread sleeps, and nothing is under way: who posts a run may begin it.
    kBegun,      // The thread sleeps; begun_ is under way, for it to conclude when it wakes.
    kTaken,      // The thread sleeps; another one has seen that run's end, and finishes it.
    kTakenAwake  // The thread has woken, and waits for that one.
  };
  // REQUIRES: the lock is held; the two follow one another (kFollows).
  void Become(State state);
  bool under_way() const { return state_ != State::kDeciding && state_ != State::kAsleep; }
  base::Nanos Now() const { return ranks_->clock().Now(); }

  void Loop();
  void Heal(std::unique_lock<std::mutex>& lock);
  // Ranks::Watch, in which Post may begin a run. Whether it did, and the thread has concluded it.
  bool Rest(base::Nanos timeout, std::unique_lock<std::mutex>& lock);
  // Gives the run to the ranks if nothing goes before it and it may wait for the thread, which then concludes it.
  // REQUIRES: the lock is held.
  bool Begin(RunJob& job);
  void Conclude(RunJob& job);
  // For Ranks::OnWait: ends what is late in the queue, and says why the run under way is given up, or when to ask next.
  Result<base::Nanos> EndEarly();
  // `job` has left the queue. REQUIRES: the lock is held.
  void WaitsNoMore(const Job& job);
  // Told by Ranks::OnLate.
  void Late(std::string_view what, std::string_view where);
  void NotLate();
  // Whether the thread sleeps while `run`, begun, is under way. REQUIRES: the lock is held.
  bool IsPosted(int64_t run) const { return state_ == State::kBegun && begun_->run == run; }
  // Concludes `run` if it has ended and the thread sleeps; false while it has not ended.
  bool TakeEnd(int64_t run);
  // The run's turn begins.
  void CountTurn(const RunJob& job, base::Nanos start);
  // What is left of a run when the workers are through with it.
  void Over(RunJob& job, base::Nanos start, const Status& status);
  void Account(RunJob& job, base::Nanos start, const Status& status);  // All of it but Finish.
  // Ranks::Post of a run whose program, inputs and outputs the workers have. False: they do not have all, or it is no
  // run to post; nothing was sent.
  bool PostRun(const RunJob& job);
  // Whether all ranks keep what is bound there: a node has the memory for it before its ranks begin.
  bool AllKeep() const;
  // OK, or why memory is gone that a client has lent, in which `tensor` was to lie.
  static Status WhyNotLent(const Tensor& tensor, std::string_view what);
  // OK, or why a device is not there, which `what` needs.
  Status WhyAbsent(int64_t device, std::string_view what) const;
  // Whether all ranks were ready for the run, and then how it went.
  Status Execute(const RunJob& job, std::string_view what);
  void Carry(RunJob& job);
  void Carry(FetchJob& job);
  void Carry(StoreJob& job);
  // Ranks::Call. When the mesh does not outlive it, what lived there is lost.
  Status Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
              Ranks::Waits waits);
  Status Await(TimeLimit timeout, std::string_view what);
  // The workers are gone, and what they had.
  void Forget();
  // Tensors of which a rank does not keep its part.
  void LoseWhatIsGone();
  // Takes note of what Keep was given since.
  void NoteKept();
  // Forgets tensors that are gone, once they may be half of on_devices_.
  void SweepFreed();
  // The run was: its inputs and outputs are where the workers are.
  void Settled(const RunJob& job);
  // The shards that the latest run was the first to bind are bound no more.
  void Unbind();
  // What the workers hold of tensors and programs that are gone goes to release_; whether there is something.
  bool FindReleased();
  std::optional<RankMessage> TakeReleased();
  // Sends what was released since the last time, when there is something.
  void Release();
  std::vector<std::vector<RankMessage>> MessagesFor(const RunJob& job);
  // The last of a run's messages, for every rank.
  void Fill(const RunJob& job, ::hostir::v1::Execute& execute) const;
  bool HasAll(const RunJob& job) const;
  std::vector<std::vector<RankMessage>> NoMessages() const;
  // Adds what binds the shards of `tensor` that the workers do not have yet.
  void AddBinds(const Tensor& tensor, std::vector<std::vector<RankMessage>>& messages);
  // It is the turn of `turn`. REQUIRES: the lock is held.
  void NoteWhoWaits(const Owner& turn, base::Nanos now);
  void FailQueued(const Status& cause);
  // What has left the queue in vain, under the lock, is to end without it: until then no turn begins, since a run might
  // find an input neither made nor poisoned.
  void Leaving(const std::vector<Job>& jobs);
  void Fail(std::vector<Job> jobs, const Status& cause);
  void Finish(RunJob& job, const Status& outcome);
  // `told` to who waits for the run and to the log, in place of `outcome`.
  void Finish(RunJob& job, const Status& outcome, const Status& told);
  static void Finish(FetchJob& job, const Status& outcome);
  static void Finish(StoreJob& job, const Status& outcome);

  const Options options_;
  const std::shared_ptr<Wakeup> wakeup_;
  const std::shared_ptr<ReleasedShards> released_;
  const std::function<std::vector<int64_t>()> gone_;
  // Used by the thread, and while that sleeps by Begin and TakeEnd, under the lock: what follows too. But for
  // snapshot().
  const std::unique_ptr<Ranks> ranks_;
  ::hostir::v1::Execute execute_;  // Filled for each run that is posted, so that it keeps its memory.
  ::hostir::v1::Release release_;  // What to say when there is an occasion.
  // Programs and shards the workers of this generation have.
  std::set<int64_t> loaded_;
  std::set<int64_t> sent_;  // Programs they were told to load, whatever became of the run.
  std::set<int64_t> bound_;
  std::vector<int64_t> releasing_;       // Sent; the ranks that are to answer may be gone before they hear of it.
  std::set<int64_t> kept_;               // Bound in generations before, at ranks that keep them.
  const RunJob* carried_out_ = nullptr;  // The thread's own: the run it is at, and since when,
  base::Nanos carried_out_since_ = {};
  bool is_late_ = false;                           // late_ is there.
  base::Nanos told_late_ = {};                     // How long it was at it when the log was last told; 0: not yet.
  std::vector<int64_t> newly_bound_;               // By the latest run.
  std::vector<std::weak_ptr<Tensor>> on_devices_;  // Tensors that only the workers have.
  size_t on_devices_swept_ = 0;                    // How many there were when it was last swept.

  std::mutex given_mutex_;
  std::vector<std::weak_ptr<Tensor>> given_;  // To Keep. Guarded by given_mutex_, as the next.
  std::vector<int64_t> given_shards_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // Guarded by mutex_: the ones below.
  FairQueue<Job> queue_;
  EarlyEnds early_ends_;
  int64_t num_leaving_ = 0;
  base::Nanos clients_wait_until_ = {};  // Several did a moment ago.
  State state_ = State::kDeciding;
  base::Nanos rests_until_ = {};  // Or less.
  std::optional<RunJob> begun_;   // There in kBegun.
  base::Nanos begun_at_ = {};
  std::optional<UnderWay> late_;
  std::atomic<int64_t> num_over_ = 0;
  std::atomic<bool> clients_wait_ = false;
  std::atomic<int> num_looking_ = 0;    // Threads in LookForEnd.
  std::atomic<bool> stopping_ = false;  // Written under mutex_.
  std::thread thread_;
};

}  // namespace hir::service
