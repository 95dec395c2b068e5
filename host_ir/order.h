// What is known to come after what: vector clocks over the streams of one unrolled program.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "csrc/ir/graph.h"

namespace hir::host {

// The positions, one a stream, up to which work is known to be over. Streams are numbered as they
// appear.
using Clock = std::vector<int>;
bool AtMost(const Clock& a, const Clock& b);  // Every entry of a is at most b's.
void Join(Clock& into, const Clock& from);    // The entrywise maximum.

// A piece of queued work.
struct Point {
  int stream = -1;
  int position = 0;
};

// Streams and event indices are expressions of one pool, compared by address: two that differ may
// still have one value, which is then not used.
class Order {
 public:
  // Work queued on `stream` now.
  Point Queue(const ir::Expr* stream);
  // What the work queued next on `stream` comes after.
  const Clock& Ahead(const ir::Expr* stream) { return streams_[static_cast<size_t>(Id(stream))].clock; }
  bool Before(const Point& point, const ir::Expr* stream);

  void Record(const ir::Value* event, const ir::Expr* index, const ir::Expr* stream);
  // False when there was no such record yet.
  bool Wait(const ir::Value* event, const ir::Expr* index, const ir::Expr* stream);
  bool HostWait(const ir::Value* event, const ir::Expr* index);
  // The clock that a wait would join in; null before the first record.
  const Clock* Recorded(const ir::Value* event, const ir::Expr* index) const;
  // `stream` comes after `clock` from now on.
  void After(const ir::Expr* stream, const Clock& clock);

  // Whether some record had an index that is not a constant.
  bool HasSymbolicIndex() const { return symbolic_; }

  int Id(const ir::Expr* stream);

 private:
  struct Stream {
    const ir::Expr* name = nullptr;
    Clock clock;
    int position = 0;
  };
  struct Event {
    const ir::Value* event = nullptr;
    const ir::Expr* index = nullptr;
    Clock clock;
  };
  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::map<std::pair<int, const ir::Expr*>, size_t> by_name_;  // Into events_, by value id; for lookup alone.
  bool symbolic_ = false;                                      // Some index is not a constant.
  Clock host_;  // What the host waited for: every later op comes after it.
};

}  // namespace hir::host
