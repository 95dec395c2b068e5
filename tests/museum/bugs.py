"""Bugs of the sequencer and of clusters, each as the text that puts it back, and what a test then must not let pass."""

from __future__ import annotations

from dataclasses import dataclass

SEQUENCER = "service/engine/sequencer.cc"
QUEUE = "service/engine/fair_queue.h"
CLUSTER = "service/cluster/cluster_ranks.cc"
AGENT = "service/cluster/agent.cc"
FENCE = "service/cluster/term_fence.cc"
ELECTION = "service/member/election.cc"


@dataclass(frozen=True)
class Bug:
    """``file`` with ``right`` (there once) replaced by ``wrong``: then the program ``test`` fails."""

    name: str
    story: str
    right: str
    wrong: str
    file: str = SEQUENCER
    test: str = "sequencer_test"


BUGS = [
    Bug(
        "shards_of_the_dead",
        "Ranks that have just started are taken to have mapped what those before had.",
        "    break;\n  }\n  bound_.clear();\n",
        "    break;\n  }\n",
    ),
    Bug(
        "programs_of_the_dead",
        "Ranks that have just started are taken to have loaded what those before had.",
        "  release_.Clear();\n  loaded_.clear();\n  sent_.clear();\n",
        "  release_.Clear();\n  sent_.clear();\n",
    ),
    Bug(
        "nothing_is_lost",
        "Tensors whose only memory was a dead rank's stay ready.",
        "tensor->readiness()->Lose(lost);",
        "(void)tensor;",
    ),
    Bug(
        "dropped_too_early",
        "The daemon's copy of an input goes though the run that would have brought it to the ranks failed.",
        "  if (ranks_->healthy() && status.ok()) {\n    loaded_.insert",
        "  Settled(job);\n  if (ranks_->healthy() && status.ok()) {\n    loaded_.insert",
    ),
    Bug(
        "bound_though_refused",
        "Shards of a run that a rank refused count as there.",
        "  } else if (ranks_->healthy() && options_.on_devices) {\n    Unbind();\n",
        "  } else if (ranks_->healthy() && options_.on_devices) {\n",
    ),
    Bug(
        "ended_twice",
        "A run whose end another thread saw is concluded by its own thread, too.",
        "  RunJob job = *std::exchange(begun_, std::nullopt);\n  Become(State::kTaken);\n",
        "  RunJob job = *begun_;\n",
    ),
    Bug(
        "overtakes",
        "A run begins at once though others of its session wait.",
        "if (state_ != State::kAsleep || !queue_.empty() || num_leaving_ > 0) return false;",
        "if (state_ != State::kAsleep || num_leaving_ > 0) return false;",
    ),
    Bug(
        "begins_with_poison",
        "A run that begins at once does not look whether its inputs are poisoned.",
        "if (PoisonOf(job) || !PostRun(job)) return false;",
        "if (!PostRun(job)) return false;",
    ),
    Bug(
        "runs_with_poison",
        "A run does not look whether its inputs are poisoned when its turn comes.",
        "  if (const auto poison = PoisonOf(job)) return Finish(job, poison->cause, poison->told);\n",
        "",
    ),
    Bug(
        "evicted_but_known",
        "A program that ranks were told to drop counts as loaded.",
        "    loaded_.erase(program);\n    if (sent_",
        "    if (sent_",
    ),
    Bug(
        "left_behind",
        "What is queued when the daemon stops is never answered.",
        "  if (thread_.joinable()) thread_.join();\n  FailQueued(cause);\n",
        "  if (thread_.joinable()) thread_.join();\n",
    ),
    Bug(
        "cancelled_in_silence",
        "What a session had queued that ended is dropped, and nobody hears of it.",
        "    Leaving(removed);\n  }\n  Fail(std::move(removed), cause);\n}\n",
        "    Leaving(removed);\n  }\n  num_leaving_ = 0;\n}\n",
    ),
    Bug(
        "a_deadline_that_nobody_hears_of",
        "A run with a deadline is queued behind one that is under way, and who waits for that looks at it no sooner.",
        "      if (run->deadline.there()) ranks_->Nudge();\n",
        "",
    ),
    Bug(
        "a_deadline_outlives_its_wait",
        "A run whose turn has come is taken out of the queue again at its deadline.",
        "    const base::Nanos start = Now();\n    WaitsNoMore(turn.item);\n",
        "    const base::Nanos start = Now();\n",
    ),
    Bug(
        "cancelled_asleep",
        "A run that began while the thread sleeps is cancelled, and the thread sleeps on.",
        "  if (state_ == State::kBegun) wakeup_->Signal();  // The thread has to see to its end.\n",
        "",
    ),
    Bug(
        "nobody_wakes_it",
        "A run is queued, and the thread sleeps on.",
        "    queue_.Push(owner, std::move(job));\n  }\n  wakeup_->Signal();\n",
        "    queue_.Push(owner, std::move(job));\n  }\n",
    ),
    Bug(
        "no_run_before_the_program",
        "On devices a run is posted as if the program were loaded there.",
        "  if (!loaded_.contains(job.program->number())) return false;\n",
        "",
    ),
    Bug(
        "first_come",
        "Turns cost nobody anything, so that who is first by name has them all.",
        "    principals_.Charge(owner.principal, time);\n",
        "    (void)time;\n",
        QUEUE,
    ),
    Bug(
        "credit_for_the_idle",
        "Who was away for an hour has an hour of turns to come.",
        "return found == used_.end() ? floor_ : std::max(found->second.used, floor_);",
        "return found == used_.end() ? base::Nanos() : found->second.used;",
        QUEUE,
        "fair_queue_test",
    ),
    Bug(
        "latest_first",
        "A session's runs are carried out in the wrong order.",
        "Turn turn = {{principal->first, session->first}, std::move(session->second.front().item)};\n"
        "    session->second.pop_front();",
        "Turn turn = {{principal->first, session->first}, std::move(session->second.back().item)};\n"
        "    session->second.pop_back();",
        QUEUE,
    ),
    Bug(
        "an_answer_of_before",
        "A node's answer to an order of ranks that are over is taken for its word that the next ones have started.",
        " || node.order || phase_ == Phase::kStarting) return {};",
        " || node.order) return {};",
        file=CLUSTER,
        test="cluster_ranks_test",
    ),
    Bug(
        "who_died_kept_it",
        "A node that has started anew is taken to have kept what it had.",
        "if (std::exchange(node.incarnation, joined.incarnation()) != joined.incarnation()) node.keeps = false;",
        "node.incarnation = joined.incarnation();",
        file=CLUSTER,
        test="cluster_ranks_test",
    ),
    Bug(
        "a_start_after_its_end",
        "A node starts ranks of a generation that the head has ended before the start had its turn.",
        "if (stopping_ || start.generation() <= ended_) return;",
        "if (stopping_) return;",
        file=AGENT,
        test="agent_test",
    ),
    Bug(
        "an_earlier_head",
        "A node obeys a head whose term is over.",
        "  if (term < term_)\n    return Status(",
        "  if (term < 0)\n    return Status(",
        file=FENCE,
        test="election_test",
    ),
    Bug(
        "two_heads_of_a_term",
        "A node obeys a second head of the term whose head it has heard.",
        "if (term == term_ && !head_.empty() && head != head_)",
        "if (false)",
        file=FENCE,
        test="agent_test",
    ),
    Bug(
        "a_replaced_head",
        "What a head says that was replaced is heard.",
        "  std::unique_lock lock(mutex_);\n  if (!fence_.Hears(number)) return;\n  if (message.has_taken())",
        "  std::unique_lock lock(mutex_);\n  if (message.has_taken())",
        file=AGENT,
        test="agent_test",
    ),
    Bug(
        "tickets_of_a_replaced_head",
        "What a head that was replaced granted to clients stays granted.",
        "  say_ = nullptr;\n  tickets_.Clear();\n",
        "  say_ = nullptr;\n",
        file=AGENT,
        test="agent_test",
    ),
    Bug(
        "a_bind_before_its_bytes",
        "An order overtakes the bytes that it binds, where they wait for room.",
        "    if (size == 0) return {};\n",
        "    if (size == 0) break;\n",
        file=CLUSTER,
        test="cluster_ranks_test",
    ),
    Bug(
        "orders_before_the_bytes_of_others",
        "Ranks begin while bytes are on their way to those that they wait for.",
        "  if (std::ranges::any_of(of_node_, [](const Node& other) { return !other.bulk.empty(); })) return {};\n",
        "",
        file=CLUSTER,
        test="cluster_ranks_test",
    ),
    Bug(
        "slow_is_stuck",
        "A transfer that goes on over a slow link runs into the limit of what does not.",
        "base::Nanos end = std::min(std::max(began_, moved_), began_ + slowest) + limit.time + kNodeGrace;",
        "base::Nanos end = std::min(began_, began_ + slowest) + limit.time + kNodeGrace;",
        file=CLUSTER,
        test="cluster_ranks_test",
    ),
    Bug(
        "told_and_not_heard",
        "What a node is told to release, over a link that drops at once, it keeps for good.",
        "  node.released.insert(node.released.end(), node.told.begin(), node.told.end());\n",
        "",
        file=CLUSTER,
        test="cluster_ranks_test",
    ),
    Bug(
        "heads_without_a_lease",
        "Who finds another head elected takes itself for the head still.",
        "  if (view_.term > own_term_) Depose();",
        "  if (false) Depose();",
        file=ELECTION,
        test="election_test",
    ),
    Bug(
        "elected_over_another",
        "A head is elected in a term that another one has taken meanwhile.",
        "  if (term != lead.end()) stand.when[1].value = term->value;\n",
        "  if (term != lead.end()) stand.when.pop_back();\n",
        file=ELECTION,
        test="election_test",
    ),
    Bug(
        "elected_and_never_heard",
        "The answer to the transaction that elected it was lost, and it waits for that head, itself, for good.",
        "    if (is_new) HIR_TRY(Begin(*view_.head));  // It was elected, and never heard.\n",
        "",
        file=ELECTION,
        test="election_test",
    ),
    Bug(
        "written_halfway",
        "A later head takes a shard that a run was writing for the run's output.",
        "  if (is_there) shards_->SetWhole(written, false);\n",
        "",
        file=AGENT,
        test="agent_test",
    ),
    Bug(
        "bound_is_not_written",
        "A later head takes what a run was to write for what it wrote, since there was memory for it.",
        "bound_outputs_ = std::exchange(written, {});  // Nothing is written yet.",
        "bound_outputs_ = written;",
        file=AGENT,
        test="agent_test",
    ),
    Bug(
        "kept_while_away",
        "A node that had no part, and has started anew meanwhile, is taken to have kept what it had.",
        "    if (served && node.takes_part) node.keeps = !options_.on_devices;\n",
        "    if (served) node.keeps = !options_.on_devices;\n",
        file=CLUSTER,
        test="cluster_ranks_test",
    ),
]
