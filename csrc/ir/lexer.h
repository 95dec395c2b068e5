// The tokens of the text form. Private to csrc/ir.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace hir::ir {

enum class TokenKind : uint8_t {
  kEnd,
  kWord,         // mesh_x, f32
  kInt,          // 42
  kFloat,        // 0.5, 1e+20
  kValue,        // %x; text is "x"
  kAt,           // @m, @m.x; text is "m", "m.x"
  kString,       // "text"; text is what is between the quotes
  kPunctuation,  // one of ( ) { } [ ] , : = | + - * /
  kBad,          // text is what is wrong
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text = {};
  uint64_t integer = 0;  // kInt: at most 2^63, for the sake of -2^63.
  double number = 0;     // kFloat, kInt.
  int line = 1;

  bool Is(char c) const { return kind == TokenKind::kPunctuation && text[0] == c; }
  bool IsWord(std::string_view word) const { return kind == TokenKind::kWord && text == word; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  Token Next();

 private:
  void SkipSpace();
  Token Number();
  Token String();
  std::string_view Word();

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

// For messages: "'relu'", "'%x'", "the end of the text".
std::string Describe(const Token& token);

// The bytes that the inside of a quoted string stands for, and back: \" \\ \n \t \xNN.
Result<std::string> Unescape(std::string_view inside);
std::string Quote(std::string_view text);

}  // namespace hir::ir
