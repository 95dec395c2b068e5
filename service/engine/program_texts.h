// ProgramTexts: programs by the bytes in which clients sent them, so that what was parsed once is found without
// parsing. Many texts may be one program; each is kept whole and compared whole, so no two are taken for each other.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "service/engine/program.h"

namespace hir::service {

// Not thread-safe.
class ProgramTexts {
 public:
  // An entry counts its text and that much: what keeps it.
  static constexpr int64_t kEntryBytes = 256;

  explicit ProgramTexts(int64_t bytes_max) : bytes_max_(bytes_max) {}

  // Null when there is none of these bytes.
  std::shared_ptr<const Program> Find(std::string_view text);
  // From now on `text` is `program`. The texts not used for longest go until all fit; one that alone does not fit is
  // not kept.
  void Keep(std::string text, std::shared_ptr<const Program> program);
  // Forgets all texts of `program`.
  void Drop(const Program& program);

  int64_t bytes() const { return bytes_; }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

 private:
  struct Entry {
    std::string text;
    std::shared_ptr<const Program> program;
  };
  using Place = std::list<Entry>::iterator;
  static int64_t BytesOf(const Entry& entry);
  void Erase(Place place);

  const int64_t bytes_max_;
  int64_t bytes_ = 0;
  std::list<Entry> entries_;                              // The latest used first.
  std::unordered_map<std::string_view, Place> by_text_;   // Views of entries_.
  std::set<std::pair<const Program*, const Entry*>> of_;  // Which entries a program has.
};

}  // namespace hir::service
