// What fits a terminal: text that is wider or higher moves what is there, and cannot be taken back by the cursor.
#pragma once

#include <string>
#include <string_view>

namespace hir::cli {

// In characters; 0: any.
struct TerminalSize {
  int rows = 0;
  int columns = 0;
};

// Of the terminal at `fd`; any, where there is none, or it does not say.
TerminalSize SizeOfTerminal(int fd);

// The first rows of `text`, each cut before the last column, where a cursor may go to the next row; no line's end is
// behind the last.
std::string Fitted(std::string_view text, const TerminalSize& size);

}  // namespace hir::cli
