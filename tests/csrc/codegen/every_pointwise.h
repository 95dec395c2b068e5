// Fusion programs that hold each pointwise op of the table, a few in each, for code generators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/promote.h"

namespace hir::codegen {

struct PointwiseProgram {
  std::string text;  // One symbol: i0.
  bool unary = false;
};

// Floats as `real`, integers as `whole`.
inline std::vector<PointwiseProgram> EveryPointwiseOp(std::string_view real, std::string_view whole) {
  using fusion::TypeRule;
  struct Row {
    std::string_view name;
    int operands;
    TypeRule rule;
  };
  static constexpr Row kRows[] = {
#define POINTWISE(Name, mnemonic, operands, rule, formula, doc) {mnemonic, operands, TypeRule::rule},
#include "csrc/fusion/fusion_ops.def"
  };
  constexpr size_t kOpsOfOne = 8;
  std::vector<PointwiseProgram> programs;
  for (const bool unary : {true, false}) {
    std::vector<Row> rows;
    for (const Row& row : kRows) {
      if ((row.operands == 1) == unary) rows.push_back(row);
    }
    for (size_t first = 0; first < rows.size(); first += kOpsOfOne) {
      std::string params, ops, outputs;
      for (const std::string_view name : {"x", "y", "z", "w"}) {
        base::Append(params, params.empty() ? "" : ", ", "%", name, ": ", real, "[i0], %i", name, ": ", whole, "[i0]");
      }
      for (size_t k = first; k < std::min(first + kOpsOfOne, rows.size()); ++k) {
        const Row& row = rows[k];
        const bool ints = row.rule == TypeRule::kBits || row.rule == TypeRule::kInts;
        const std::string_view kind = ints ? "i" : "";
        std::string operands;
        for (int n = 0; n < row.operands; ++n) {
          const bool condition = row.rule == TypeRule::kSelect && n == 0;
          base::Append(operands, n == 0 ? "" : ", ", condition ? "%b" : base::Cat("%", kind),
                       condition ? "" : std::string_view("xyzw").substr(static_cast<size_t>(n), 1));
        }
        base::Append(ops, "  %r", k, " = ", row.name, "(", operands, ")\n");
        base::Append(outputs, outputs.empty() ? "" : ", ", "%r", k);
      }
      programs.push_back(
          {base::Cat("fusion @f(", params, ", %b: bool[i0]) {\n", ops, "  return ", outputs, "\n}\n"), unary});
    }
  }
  return programs;
}

}  // namespace hir::codegen
