#include "service/engine/program_cache.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"
#include "service/store/store.h"

namespace hir::service {

ProgramCache::ProgramCache(PlannerOptions planner, const Limits& limits, std::shared_ptr<Metrics> metrics,
                           std::function<bool()> several_principals, const base::Clock& clock)
    : limits_(limits),
      metrics_(std::move(metrics)),
      by_sent_(limits.program_texts_bytes_max),
      planners_(std::move(planner), limits, metrics_, clock,
                {.find = [this](const Wanted& wanted) { return FindWanted(wanted); },
                 .keep = [this](const Wanted& wanted, const Owner& owner,
                                ::hostir::v1::Plan plan) { return KeepMade(wanted, owner, std::move(plan)); },
                 .several_principals = several_principals ? std::move(several_principals) : [] { return false; }}) {}

ProgramCache::~ProgramCache() = default;

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
  lock.unlock();
  planners_.Ask({.text = text, .source = source, .request = asker.request},
                {std::move(done), std::move(asker.owner), std::move(asker.progress)});
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
  Wanted wanted = {.text = entry->second.text, .source = {}, .of = program, .sizes = sizes, .request = asker.request};
  lock.unlock();
  wanted.source.set_text(wanted.text);
  planners_.Ask(std::move(wanted), {std::move(done), std::move(asker.owner), std::move(asker.progress)});
}

std::shared_ptr<const Program> ProgramCache::FindWanted(const Wanted& wanted) {
  const std::scoped_lock lock(mutex_);
  if (wanted.of != nullptr) return FindLocked(wanted.of, wanted.sizes);
  const auto found = by_text_.find(wanted.text);
  return found == by_text_.end() ? nullptr : found->second;
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

Result<std::string> ProgramCache::TextOf(std::string_view id) {
  HIR_TRY(Find(id).status());
  const std::scoped_lock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) return found->second.text;
  return Unavailable("the program was evicted meanwhile; try again");
}

void ProgramCache::Touch(Entry& entry) {
  ++entry.requests;
  const auto at = std::find(recent_.begin(), recent_.end(), entry.program);
  if (at != recent_.end()) recent_.splice(recent_.begin(), recent_, at);
}

Result<std::shared_ptr<const Program>> ProgramCache::KeepMade(const Wanted& wanted, const Owner& owner,
                                                              ::hostir::v1::Plan plan) {
  ++num_planned_;
  int64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    number = next_number_++;
  }
  const std::string id = wanted.of == nullptr ? RandomId() : wanted.of->id();
  HIR_ASSIGN(std::shared_ptr<const Program> program, Program::Make(id, number, std::move(plan)));
  program = Watched(std::move(program), gone_);
  if (wanted.of == nullptr) {
    Keep(wanted, owner.principal, program);
    return program;
  }
  HIR_TRY(program->Serves(wanted.sizes));  // Else no plan does.
  KeepFor(wanted, program);
  return program;
}

void ProgramCache::KeepFor(const Wanted& wanted, const std::shared_ptr<const Program>& sized) {
  const std::scoped_lock lock(mutex_);
  const auto entry = by_id_.find(wanted.of->id());
  if (entry == by_id_.end()) return;  // Evicted meanwhile: who waits for it will find no program.
  auto& plans = entry->second.sized;
  plans.push_front(sized);
  while (std::ssize(plans) > std::max<int64_t>(1, limits_.program_plans_max)) {
    plans.pop_back();
    metrics_->cache_evictions.Add();
  }
}

void ProgramCache::Keep(const Wanted& wanted, const std::string& principal, std::shared_ptr<const Program> program) {
  std::string sent = wanted.source.SerializeAsString();
  const std::scoped_lock lock(mutex_);
  by_text_[wanted.text] = program;
  by_sent_.Keep(std::move(sent), program);
  by_id_[program->id()] = {program, wanted.text, principal};
  ++num_of_[principal];
  recent_.push_front(std::move(program));
  const int64_t its_most = limits_.principal_programs_max;
  if (its_most > 0 && num_of_[principal] > its_most) Evict(principal);
  if (std::ssize(recent_) <= std::max<int64_t>(1, limits_.programs_max)) return;
  const auto most = std::ranges::max_element(num_of_, {}, [](const auto& one) { return one.second; });
  Evict(num_of_[principal] == most->second ? principal : most->first);
}

void ProgramCache::Evict(const std::string& principal) {
  const auto its = [&](const auto& program) { return by_id_.find(program->id())->second.principal == principal; };
  const auto oldest = std::find_if(recent_.rbegin(), recent_.rend(), its);
  const auto entry = by_id_.find((*oldest)->id());
  by_text_.erase(entry->second.text);
  by_sent_.Drop(*entry->second.program);
  if (--num_of_[principal] == 0) num_of_.erase(principal);
  by_id_.erase(entry);
  recent_.erase(std::next(oldest).base());
  metrics_->cache_evictions.Add();
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
