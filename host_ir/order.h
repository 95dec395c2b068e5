// What is known to come after what, over the streams of one unrolled program.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "csrc/ir/graph.h"
#include "host_ir/unroll.h"

namespace hir::host {

// Work queued on one stream, at positions [from, to]. Streams are numbered as they appear, positions count from 1.
struct Stretch {
  int stream = -1;
  int from = 0;
  int to = 0;
};

// The work that is known to be over: stretches, sorted and apart. Of a stream mostly all up to some position; behind a
// loop that may make no iteration perhaps what is in the loop, and not what is before it.
using Clock = std::vector<Stretch>;
bool AtMost(const Clock& a, const Clock& b);  // All of a is in b.
void Join(Clock& into, const Clock& from);    // What is in either.
void Meet(Clock& into, const Clock& from);    // What is in both.

// A piece of queued work.
struct Point {
  int stream = -1;
  int position = 0;
};
bool Holds(const Clock& clock, const Point& point);

// Streams and event indices are expressions of one pool, compared by address: two that differ may
// still have one value, which is then not used. Events go by numbers of the caller's choice.
class Order {
 public:
  // Work queued on `stream` now.
  Point Queue(const ir::Expr* stream);
  // What the work queued next on `stream` comes after.
  const Clock& Ahead(const ir::Expr* stream) { return streams_[static_cast<size_t>(Id(stream))].clock; }
  bool Before(const Point& point, const ir::Expr* stream);

  void Record(int event, const ir::Expr* index, const ir::Expr* stream);
  // False when there was no such record yet.
  bool Wait(int event, const ir::Expr* index, const ir::Expr* stream);
  // The clock that a wait would join in; null before the first record.
  const Clock* Recorded(int event, const ir::Expr* index) const;

  // Does what `step` says, if it is a record, a wait (events go by their value's id) or a turn of a loop. False for
  // others.
  bool Follow(const Step& step);

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
    int event = 0;
    const ir::Expr* index = nullptr;
    Clock clock;
  };
  // What is known wherever a loop may have ended until now. Work that is queued later would not be there then, which
  // is as good as over.
  struct Ends {
    std::vector<Clock> streams, events;
    std::vector<int> positions;  // Of the streams, when it was last brought up to date.
  };

  // `stream` comes after `clock` from now on.
  void After(const ir::Expr* stream, const Clock& clock);
  void MayEnd(Ends& ends) const;

  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::map<std::pair<int, const ir::Expr*>, size_t> by_name_;  // Into events_; for lookup alone.
  bool symbolic_ = false;                                      // Some index is not a constant.
  std::vector<Ends> loops_;  // Of the loops around that may end early, the innermost last.
};

}  // namespace hir::host
