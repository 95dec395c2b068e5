#include "service/engine/program_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "csrc/base/digest.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/store/store.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// Programs that killed the planner are remembered up to that many; their texts take memory.
constexpr size_t kDeathsKept = 64;

}  // namespace

ProgramCache::ProgramCache(PlannerOptions planner, const Limits& limits, std::shared_ptr<Metrics> metrics)
    : limits_(limits),
      metrics_(std::move(metrics)),
      queued_bytes_("queued_plans_bytes_max", "bytes of programs that wait for the planner",
                    limits.queued_plans_bytes_max),
      planner_(std::move(planner)),
      by_sent_(limits.program_texts_bytes_max),
      thread_([this] { Loop(); }) {}

ProgramCache::~ProgramCache() { Stop(Unavailable("the daemon is shutting down")); }

void ProgramCache::Stop(const Status& cause) {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  planner_.Interrupt(cause);
  changed_.Signal();
  if (thread_.joinable()) thread_.join();
  std::list<Request> unplanned;
  {
    const std::scoped_lock lock(mutex_);
    unplanned.swap(queue_);
  }
  for (const Request& request : unplanned) {
    for (const Waiter& waiter : request.waiting) waiter.done(cause);
  }
}

void ProgramCache::Get(const std::string& text, const ::hostir::v1::ProgramSource& source, Done done, PlanAsker asker) {
  std::string sent = source.SerializeAsString();
  std::unique_lock lock(mutex_);
  if (const auto found = by_text_.find(text); found != by_text_.end()) {
    const std::shared_ptr<const Program> program = found->second;
    Touch(by_id_.find(program->id())->second);
    by_sent_.Keep(std::move(sent), program);
    lock.unlock();
    metrics_->cache_hits.Add();
    return done(program);
  }
  Queue({.text = text, .source = source, .request = asker.request},
        {std::move(done), std::move(asker.owner), std::move(asker.progress)}, std::move(lock));
}

std::shared_ptr<const Program> ProgramCache::FindSent(std::string_view sent) {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<const Program> program = by_sent_.Find(sent);
  if (program == nullptr) return nullptr;
  Touch(by_id_.find(program->id())->second);
  metrics_->cache_hits.Add();
  return program;
}

void ProgramCache::GetFor(const std::shared_ptr<const Program>& program, const Sizes& sizes, Done done,
                          PlanAsker asker) {
  std::unique_lock lock(mutex_);
  if (const std::shared_ptr<const Program> found = FindLocked(program, sizes)) {
    lock.unlock();
    metrics_->cache_hits.Add();
    return done(found);
  }
  const auto entry = by_id_.find(program->id());
  if (entry == by_id_.end()) {
    lock.unlock();
    return done(
        Status(Code::kNotFound, base::Cat("no program \"", program->id(), "\" here, or no longer: compile it again")));
  }
  Request request = {.text = entry->second.text, .source = {}, .of = program, .sizes = sizes};
  request.source.set_text(request.text);
  request.request = asker.request;
  Queue(std::move(request), {std::move(done), std::move(asker.owner), std::move(asker.progress)}, std::move(lock));
}

std::shared_ptr<const Program> ProgramCache::FindFor(const std::shared_ptr<const Program>& program,
                                                     const Sizes& sizes) {
  const std::scoped_lock lock(mutex_);
  return FindLocked(program, sizes);
}

std::shared_ptr<const Program> ProgramCache::FindLocked(const std::shared_ptr<const Program>& program,
                                                        const Sizes& sizes) {
  if (program->Serves(sizes).ok()) return program;
  const auto entry = by_id_.find(program->id());
  if (entry == by_id_.end()) return nullptr;
  auto& sized = entry->second.sized;
  const auto at = std::ranges::find_if(sized, [&](const auto& p) { return p->Serves(sizes).ok(); });
  if (at == sized.end()) return nullptr;
  sized.splice(sized.begin(), sized, at);
  return sized.front();
}

void ProgramCache::Queue(Request request, Waiter waiter, std::unique_lock<std::mutex> lock) {
  const Done& done = waiter.done;
  metrics_->cache_misses.Add();
  if (stopping_) {
    lock.unlock();
    return done(Unavailable("the daemon is shutting down"));
  }
  const auto deaths = deaths_.find(request.text);
  const auto since = [&] { return base::Clock::Steady().Now() - deaths->second.latest; };
  if (deaths != deaths_.end() && since() > std::chrono::milliseconds(limits_.planner_deaths_ms)) {
    deaths_.erase(deaths);  // It may have been the machine's memory, or a kernel that is cached now.
  } else if (deaths != deaths_.end() && deaths->second.count >= limits_.planner_deaths_max) {
    lock.unlock();
    return done(Status(Code::kFailedPrecondition,
                       base::Cat("program ", base::Digest(request.text),
                                 " made the planner die planner_deaths_max = ", limits_.planner_deaths_max,
                                 " times; this is a fault of hostir: please report it with the "
                                 "program's text; it is refused for planner_deaths_ms = ",
                                 limits_.planner_deaths_ms)));
  }
  for (Request& queued : queue_) {
    if (queued.text == request.text && queued.of == request.of && queued.sizes == request.sizes) {
      queued.waiting.push_back(waiter);
      const pb::PlanProgress latest = queued.progress;
      lock.unlock();
      if (waiter.progress) waiter.progress(latest);
      return;
    }
  }
  const int64_t its = std::ranges::count_if(
      queue_, [&](const Request& queued) { return queued.waiting.front().owner.session == waiter.owner.session; });
  if (its >= limits_.queued_plans_max) {
    lock.unlock();
    return done(
        ResourceExhausted(base::Cat("queued_plans_max = ", limits_.queued_plans_max,
                                    ": as many programs of this session wait for the planner; try again later")));
  }
  Result<Charge> bytes =
      queued_bytes_.Take(static_cast<int64_t>(request.text.size() + request.source.ByteSizeLong() + sizeof(Request)));
  if (!bytes.ok()) {
    lock.unlock();
    return done(bytes.status());
  }
  request.bytes = *std::move(bytes);
  const auto place = PlaceOf(request, waiter.owner);
  request.progress.set_stage(pb::PlanProgress::STAGE_QUEUED);
  request.progress.set_plans_before(std::distance(queue_.begin(), place));
  const pb::PlanProgress first = request.progress;
  const Progress progress = waiter.progress;
  request.waiting.push_back(std::move(waiter));
  queue_.insert(place, std::move(request));
  lock.unlock();
  if (progress) progress(first);
  changed_.Signal();
}

std::list<ProgramCache::Request>::iterator ProgramCache::PlaceOf(Request& request, const Owner& owner) {
  const int64_t now = queue_.empty() ? latest_turn_ : queue_.front().turn;
  std::erase_if(turns_, [&](const auto& one) { return one.second <= now; });
  int64_t& latest = turns_.try_emplace(owner.session, now).first->second;
  // By its bytes: how long it takes nobody knows before, but large programs take longer.
  request.turn = latest += std::max<int64_t>(1, std::ssize(request.text));
  // The front has begun.
  return std::find_if(queue_.empty() ? queue_.end() : std::next(queue_.begin()), queue_.end(),
                      [&](const Request& queued) { return queued.turn > request.turn; });
}

void ProgramCache::Cancel(const Owner& owner, const Status& cause) {
  std::vector<Waiter> cancelled;
  {
    const std::scoped_lock lock(mutex_);
    for (Request& queued : queue_) {
      std::vector<Waiter>& waiting = queued.waiting;
      const auto gone = std::stable_partition(
          waiting.begin(), waiting.end(), [&](const Waiter& waiter) { return waiter.owner.session != owner.session; });
      // Whoever asked first stands for a plan that has begun.
      if (&queued == &queue_.front() && gone == waiting.begin()) continue;
      std::move(gone, waiting.end(), std::back_inserter(cancelled));
      waiting.erase(gone, waiting.end());
    }
    if (!queue_.empty())
      queue_.erase(std::remove_if(std::next(queue_.begin()), queue_.end(),
                                  [](const Request& queued) { return queued.waiting.empty(); }),
                   queue_.end());
  }
  for (const Waiter& waiter : cancelled) waiter.done(cause);
}

void ProgramCache::Tell(int64_t index, const pb::PlanProgress& progress) {
  std::vector<Progress> listening;
  {
    const std::scoped_lock lock(mutex_);
    if (index >= std::ssize(queue_)) return;
    Request& request = *std::next(queue_.begin(), index);
    request.progress = progress;
    for (const Waiter& waiter : request.waiting) {
      if (waiter.progress) listening.push_back(waiter.progress);
    }
  }
  for (const Progress& listener : listening) listener(progress);
}

void ProgramCache::TellQueued() {
  pb::PlanProgress progress;
  progress.set_stage(pb::PlanProgress::STAGE_QUEUED);
  for (int64_t i = 1; i < num_queued(); ++i) {
    progress.set_plans_before(i);
    Tell(i, progress);
  }
}

Result<std::shared_ptr<const Program>> ProgramCache::Find(std::string_view id) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    return Status(Code::kNotFound,
                  base::Cat("no program \"", id.substr(0, 64), "\" here, or no longer: compile it again"));
  }
  Touch(found->second);
  return found->second.program;
}

void ProgramCache::Touch(Entry& entry) {
  ++entry.requests;
  const auto at = std::find(recent_.begin(), recent_.end(), entry.program);
  if (at != recent_.end()) recent_.splice(recent_.begin(), recent_, at);
}

void ProgramCache::Loop() {
  // At once, so that the first program does not wait for it. A failure shows when there is a program to plan.
  if (const Status status = planner_.Start(); !status.ok())
    spdlog::error("planner error={}", base::Quoted(status.ToString()));
  for (;;) {
    changed_.Clear();
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    if (queue_.empty()) {
      lock.unlock();
      planner_.Watch(changed_.fd(), [this](int64_t pid, std::string_view how) {
        metrics_->planner_deaths.Add();
        spdlog::warn("planner={} ended at rest error={}", pid, base::Quoted(how));
      });
      continue;
    }
    const Request& request = queue_.front();  // Stays in place: only this thread removes.
    lock.unlock();
    const auto program = Plan(request);
    lock.lock();
    const std::vector<Waiter> waiting = std::move(queue_.front().waiting);
    latest_turn_ = queue_.front().turn;
    queue_.pop_front();
    lock.unlock();
    pb::PlanProgress over;
    over.set_stage(pb::PlanProgress::STAGE_DONE);
    for (const Waiter& waiter : waiting) {
      if (waiter.progress) waiter.progress(over);
      waiter.done(program);
    }
    TellQueued();
  }
}

void ProgramCache::CountDeath(const Request& request, const PlannerProcess::Outcome& outcome) {
  metrics_->planner_deaths.Add();
  const std::scoped_lock lock(mutex_);
  if (outcome.of_it && deaths_.size() >= kDeathsKept && !deaths_.contains(request.text)) deaths_.erase(deaths_.begin());
  const auto found = deaths_.find(request.text);
  int64_t deaths = found == deaths_.end() ? 0 : found->second.count;
  if (outcome.of_it) deaths_[request.text] = {++deaths, base::Clock::Steady().Now()};
  spdlog::error("planner request={} deaths={} error={}", request.request, deaths,
                base::Quoted(outcome.status.ToString()));
}

Result<std::shared_ptr<const Program>> ProgramCache::Plan(const Request& request) {
  const std::string digest = base::Digest(request.text);
  const base::Nanos start = base::Clock::Steady().Now();
  PlannerProcess::Outcome outcome = planner_.MakePlan(
      {request.source, request.sizes, digest, std::chrono::milliseconds(limits_.plan_timeout_ms)},
      {.sent =
           [&] {
             spdlog::info("planning planner={} request={} bytes={} digest={}", planner_.pid(), request.request,
                          request.text.size(), digest);
           },
       .began = [&] { spdlog::debug("planner={} began request={}", planner_.pid(), request.request); },
       .progress = [&](const pb::PlanProgress& progress) { Tell(0, progress); },
       .again =
           [&](std::string_view how) {
             metrics_->planner_deaths.Add();
             spdlog::warn("planner request={} not begun, planned again error={}", request.request, base::Quoted(how));
           }});
  const base::Nanos took = base::Clock::Steady().Now() - start;
  metrics_->plan_time.Add(took);
  metrics_->latest.Add({.kind = "plan",
                        .number = request.request,
                        .name = outcome.status.ok() ? std::string_view(outcome.plan.name()) : std::string_view(digest),
                        .code = outcome.status.code(),
                        .error = outcome.status.message(),
                        .took = took});
  if (outcome.ended) CountDeath(request, outcome);
  HIR_TRY(outcome.status);
  ++num_planned_;
  int64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    number = next_number_++;
  }
  const std::string id = request.of == nullptr ? RandomId() : request.of->id();
  HIR_ASSIGN(std::shared_ptr<const Program> program, Program::Make(id, number, std::move(outcome.plan)));
  program = Watched(std::move(program), gone_);
  if (request.of == nullptr) {
    Keep(request, program);
    return program;
  }
  HIR_TRY(program->Serves(request.sizes));  // Else no plan does.
  KeepFor(request, program);
  return program;
}

void ProgramCache::KeepFor(const Request& request, const std::shared_ptr<const Program>& sized) {
  const std::scoped_lock lock(mutex_);
  deaths_.erase(request.text);
  const auto entry = by_id_.find(request.of->id());
  if (entry == by_id_.end()) return;  // Evicted meanwhile: who waits for it will find no program.
  auto& plans = entry->second.sized;
  plans.push_front(sized);
  while (std::ssize(plans) > std::max<int64_t>(1, limits_.program_plans_max)) {
    plans.pop_back();
    metrics_->cache_evictions.Add();
  }
}

void ProgramCache::Keep(const Request& request, std::shared_ptr<const Program> program) {
  std::string sent = request.source.SerializeAsString();
  const std::scoped_lock lock(mutex_);
  deaths_.erase(request.text);
  by_text_[request.text] = program;
  by_sent_.Keep(std::move(sent), program);
  by_id_[program->id()] = {program, request.text};
  recent_.push_front(std::move(program));
  while (static_cast<int64_t>(recent_.size()) > std::max<int64_t>(1, limits_.programs_max)) {
    const auto oldest = by_id_.find(recent_.back()->id());
    by_text_.erase(oldest->second.text);
    by_sent_.Drop(*oldest->second.program);
    by_id_.erase(oldest);
    recent_.pop_back();
    metrics_->cache_evictions.Add();
  }
}

std::shared_ptr<const Program> ProgramCache::Watched(std::shared_ptr<const Program> program,
                                                     std::shared_ptr<Gone> gone) {
  const Program* const watched = program.get();
  return {watched, [program = std::move(program), gone = std::move(gone)](const Program*) mutable {
            const int64_t number = program->number();
            program.reset();
            const std::scoped_lock lock(gone->mutex);
            gone->numbers.push_back(number);
          }};
}

std::vector<int64_t> ProgramCache::TakeGone() {
  const std::scoped_lock lock(gone_->mutex);
  return std::exchange(gone_->numbers, {});
}

int64_t ProgramCache::num_queued() const {
  const std::scoped_lock lock(mutex_);
  return std::ssize(queue_);
}

int64_t ProgramCache::text_bytes() const {
  const std::scoped_lock lock(mutex_);
  return by_sent_.bytes();
}

std::vector<ProgramCache::Cached> ProgramCache::Latest() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Cached> latest;
  latest.reserve(recent_.size());
  for (const std::shared_ptr<const Program>& program : recent_) {
    const Entry& entry = by_id_.find(program->id())->second;
    latest.push_back({program->number(), entry.requests, entry.sized.empty() ? program : entry.sized.front()});
  }
  return latest;
}

int64_t ProgramCache::size() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int64_t>(recent_.size());
}

}  // namespace hir::service
