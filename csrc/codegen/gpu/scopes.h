// The code of a function while it is written, in open scopes: what is named in them, and where variables are.
// Private to csrc/codegen/gpu.
//
// Code goes into open scopes; what varies with an outer scope's variables alone is written into that scope, in front
// of what is open inside it. A "lane" is one element of a vector: code that varies along the vector variable goes
// into a loop over lanes, everything else in front of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/text.h"

namespace hir::codegen::gpu {

class Scopes {
 public:
  Scopes() : levels_(1) {}

  void Open() { levels_.emplace_back(); }
  std::string Close();
  template <typename... Parts>
  void Line(const Parts&... parts) {
    base::Append(levels_.back().code, parts..., "\n");
  }
  std::string NewName(std::string_view prefix) { return base::Cat(prefix, num_names_++); }

  // Scopes are numbered from the outermost, 0; this is the innermost one now.
  size_t level() const { return levels_.size() - 1; }
  // body() as if `level` was the innermost scope; others are open again behind it.
  void At(size_t level, const std::function<void()>& body);

  // Names in a scope, each made once for all who ask for the same.
  struct Key {
    const void* what;
    int guard;
    bool is_lane;
    auto operator<=>(const Key&) const = default;
  };
  const std::string* Find(size_t level, const Key& key) const;  // Null: not yet.
  // Gives it a name in that scope.
  std::string Named(const Key& key, size_t level, std::string_view type, const std::string& text);
  // It has one.
  void Remember(const Key& key, size_t level, std::string name) { levels_[level].memo[key] = std::move(name); }

  // body() in a scope of its own, a loop over `lanes` lanes `e`.
  void Lanes(int lanes, const std::function<void()>& body);
  size_t lane_level() const { return lane_level_; }  // 0: no loop over lanes is open.

  // The scope at which results of accumulators exist: the innermost one now.
  void SetRowScope() { row_level_ = level(); }
  size_t row_level() const { return row_level_; }

  // From here on, in the innermost scope, `variable` is `text`.
  void Define(int variable, std::string text);
  const std::string& TextOf(int variable) const { return definitions_.texts.at(variable); }
  // Its scope, as long as that is open.
  std::optional<size_t> LevelOf(int variable) const;
  // Names of variables and their scopes; to give them other values for a while.
  struct Definitions {
    std::unordered_map<int, size_t> levels;
    std::unordered_map<int, std::string> texts;
  };
  const Definitions& definitions() const { return definitions_; }
  void SetDefinitions(Definitions definitions) { definitions_ = std::move(definitions); }

  // The code is of no use, for this reason.
  void Fail(Status error) { error_ = std::move(error); }
  const Status& status() const { return error_; }

 private:
  struct Level {
    std::string code;
    std::map<Key, std::string> memo;
  };

  std::vector<Level> levels_;
  int num_names_ = 0;
  size_t lane_level_ = 0;
  size_t row_level_ = 0;
  Definitions definitions_;
  Status error_;
};

}  // namespace hir::codegen::gpu
