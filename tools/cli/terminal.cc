#include "tools/cli/terminal.h"

#include <sys/ioctl.h>

#include <algorithm>

namespace hir::cli {
namespace {

// At most `columns` bytes, no more columns; of UTF-8 whole characters.
std::string_view CutLine(std::string_view line, size_t columns) {
  if (line.size() <= columns) return line;
  while (columns > 0 && (static_cast<unsigned char>(line[columns]) & 0xc0) == 0x80) --columns;
  return line.substr(0, columns);
}

}  // namespace

TerminalSize SizeOfTerminal(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0) return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

std::string Fitted(std::string_view text, const TerminalSize& size) {
  std::string out;
  for (int row = 0; !text.empty() && (size.rows == 0 || row < size.rows); ++row) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (row > 0) out += '\n';
    out += size.columns == 0 ? line : CutLine(line, static_cast<size_t>(size.columns) - 1);
  }
  return out;
}

}  // namespace hir::cli
