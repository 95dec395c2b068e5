// Work that goes on only while some thread looks after it, such as messages between processes.
#pragma once

namespace hir::base {

// What a look at it found, the most telling last.
enum class Found {
  kNothing,
  kNeedsCore,  // Nothing, and nothing comes before another thread has had the core of the one that looked.
  kSomething,
};

// It has a thread of its own. A thread that waits anyway does it sooner: nobody has to wake.
class BackgroundWork {
 public:
  virtual ~BackgroundWork() = default;
  // Does what there is to do now. Never blocks. Any thread, one at a time.
  virtual Found Help() = 0;
  // Whoever helped sleeps now, though what it waits for is not done. As Help.
  virtual void Leave() = 0;
  // Whether there is more to come that helping would do sooner. Any thread.
  virtual bool IsUnderWay() const = 0;
};

// Any thread, but none that is inside Help.
void AddBackgroundWork(BackgroundWork& work);
// After this nobody is inside it.
void RemoveBackgroundWork(BackgroundWork& work);

// Helps each work of this process, unless another thread does; the most telling of what was found. For waiting loops.
Found HelpBackgroundWork();
// It gives up, and sleeps.
void LeaveBackgroundWork();
// Whether any is under way. Waits for nobody that helps.
bool BackgroundWorkIsUnderWay();

}  // namespace hir::base
