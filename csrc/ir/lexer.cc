#include "csrc/ir/lexer.h"

#include <charconv>
#include <cmath>

#include "csrc/base/text.h"

namespace hir::ir {
namespace {

using base::Cat;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

constexpr std::string_view kHex = "0123456789abcdef";

void AppendEscaped(std::string& out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (c == '"' || c == '\\') {
    out += '\\';
    out += c;
  } else if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += "\\t";
  } else if (byte < 0x20 || byte >= 0x7f) {
    out += "\\x";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  } else {
    out += c;
  }
}

}  // namespace

void Lexer::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
    } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      continue;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
    ++at_;
  }
}

std::string_view Lexer::Word() {
  const size_t begin = at_;
  while (at_ < text_.size() && (IsAlpha(text_[at_]) || IsDigit(text_[at_]) || text_[at_] == '.')) ++at_;
  return text_.substr(begin, at_ - begin);
}

Token Lexer::Number() {
  const size_t begin = at_;
  const auto digits = [&] {
    while (at_ < text_.size() && IsDigit(text_[at_])) ++at_;
  };
  const auto peek = [&](size_t ahead) { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; };
  digits();
  bool real = false;
  if (peek(0) == '.') {
    real = true;
    ++at_;
    digits();
  }
  if (peek(0) == 'e' && (IsDigit(peek(1)) || ((peek(1) == '+' || peek(1) == '-') && IsDigit(peek(2))))) {
    real = true;
    at_ += 2;
    digits();
  }
  Token token = {
      .kind = real ? TokenKind::kFloat : TokenKind::kInt, .text = text_.substr(begin, at_ - begin), .line = line_};
  const char* end = token.text.data() + token.text.size();
  if (IsAlpha(peek(0))) return {.kind = TokenKind::kBad, .text = "a number runs into a word", .line = line_};
  if (std::from_chars(token.text.data(), end, token.number).ec != std::errc()) {
    return {.kind = TokenKind::kBad, .text = "a number is out of range", .line = line_};
  }
  if (!real &&
      (std::from_chars(token.text.data(), end, token.integer).ec != std::errc() || token.integer > uint64_t{1} << 63)) {
    return {.kind = TokenKind::kBad, .text = "an integer does not fit in 64 bits", .line = line_};
  }
  return token;
}

Token Lexer::String() {
  const size_t begin = ++at_;
  for (; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
    if (text_[at_] == '"') {
      return {.kind = TokenKind::kString, .text = text_.substr(begin, at_++ - begin), .line = line_};
    }
    if (text_[at_] == '\\') ++at_;
  }
  return {.kind = TokenKind::kBad, .text = "a string has no end", .line = line_};
}

Token Lexer::Next() {
  SkipSpace();
  if (at_ >= text_.size()) return {.kind = TokenKind::kEnd, .line = line_};
  const char c = text_[at_];
  if (IsDigit(c)) return Number();
  if (IsAlpha(c)) return {.kind = TokenKind::kWord, .text = Word(), .line = line_};
  if (c == '"') return String();
  if (c == '%' || c == '@') {
    ++at_;
    const std::string_view name = Word();
    if (name.empty())
      return {.kind = TokenKind::kBad, .text = c == '%' ? "% without a name" : "@ without a name", .line = line_};
    return {.kind = c == '%' ? TokenKind::kValue : TokenKind::kAt, .text = name, .line = line_};
  }
  const std::string_view one = text_.substr(at_++, 1);
  if (std::string_view("(){}[],:=|+-*/").find(c) != std::string_view::npos) {
    return {.kind = TokenKind::kPunctuation, .text = one, .line = line_};
  }
  return {.kind = TokenKind::kBad, .text = "a character that has no meaning here", .line = line_};
}

std::string Describe(const Token& token) {
  if (token.kind == TokenKind::kEnd) return "the end of the text";
  if (token.kind == TokenKind::kBad) return std::string(token.text);
  std::string out = "'";
  if (token.kind == TokenKind::kValue) out += '%';
  if (token.kind == TokenKind::kAt) out += '@';
  for (const char c : token.text.substr(0, 40)) AppendEscaped(out, c);
  if (token.text.size() > 40) out += "...";
  return out + "'";
}

Result<std::string> Unescape(std::string_view inside) {
  std::string out;
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] != '\\') {
      out += inside[i];
      continue;
    }
    const char c = ++i < inside.size() ? inside[i] : '\0';
    if (c == 'n' || c == 't') {
      out += c == 'n' ? '\n' : '\t';
    } else if (c == '"' || c == '\\') {
      out += c;
    } else if (c == 'x' && i + 2 < inside.size() && kHex.find(inside[i + 1]) != std::string_view::npos &&
               kHex.find(inside[i + 2]) != std::string_view::npos) {
      out += static_cast<char>(kHex.find(inside[i + 1]) * 16 + kHex.find(inside[i + 2]));
      i += 2;
    } else {
      return InvalidArgument("a string has an escape that is none of \\\" \\\\ \\n \\t \\xNN");
    }
  }
  return out;
}

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) AppendEscaped(out, c);
  return out + '"';
}

}  // namespace hir::ir
