// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; 2011): four random words of
// 32 bits for each counter of 128 bits and key of 64. Private to csrc/fusion.
//
// `Word` is an integer of 64 bits that holds 32, the low word first in counter and key: elements, values of a graph, or
// numbers. It has the operators of C, wraps, keeps the sign in >>, and Number(word, x) is the constant x.
#pragma once

#include <array>
#include <cstddef>

namespace hir::fusion {

template <typename Word>
Word Low32(const Word& x) {
  return x & Number(x, 0xFFFFFFFF);
}
template <typename Word>
Word High32(const Word& x) {
  return Low32(x >> Number(x, 32));
}

template <typename Word>
std::array<Word, 4> Philox(std::array<Word, 4> counter, std::array<Word, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const Word first = counter[0] * Number(counter[0], 0xD2511F53);
    const Word second = counter[2] * Number(counter[2], 0xCD9E8D57);
    counter = {High32(second) ^ counter[1] ^ key[0], Low32(second), High32(first) ^ counter[3] ^ key[1], Low32(first)};
    key = {Low32(key[0] + Number(key[0], 0x9E3779B9)), Low32(key[1] + Number(key[1], 0xBB67AE85))};
  }
  return counter;
}

// The highest `bits` bits of the words from `first` on, one word or two.
template <typename Word>
Word HighestBits(const std::array<Word, 4>& words, size_t first, int bits) {
  const Word& x = words[first];
  if (bits <= 32) return x >> Number(x, 32 - bits);
  const Word& y = words[first + 1];
  return (x << Number(x, bits - 32)) | (y >> Number(y, 64 - bits));
}

}  // namespace hir::fusion
