// Programs with outputs that take over inputs, for the tests of every backend: which of them may be written in place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hir::testing {

struct InPlaceProgram {
  std::string name;
  std::string text;          // Of sizes i0, and i1 where it has two axes.
  std::string in_place;      // The outputs that may lie in their inputs, in order.
  bool is_pointwise = true;  // One kernel holds it.
};

// `dtype`: a float type.
inline std::vector<InPlaceProgram> InPlacePrograms(const std::string& dtype) {
  std::vector<InPlaceProgram> programs = {
      {"a copy", R"(fusion @f(%x: f32[i0], %z: f32[i0]) {
  %y = set(%z)
  return %y alias %x
})",
       "y"},
      {"an update", R"(fusion @f(%x: f32[i0, i1], %g: f32[i0, i1], %rate: f64) {
  %step = mul(%g, %rate)
  %y = sub(%x, %step)
  return %y alias %x
})",
       "y"},
      {"two that read each other", R"(fusion @f(%x: f32[i0, i1], %y: f32[i0, i1]) {
  %a = sub(%x, %y)
  %b = mul(%x, %y)
  return %a alias %x, %b alias %y
})",
       "a b"},
      {"two that take each other's", R"(fusion @f(%x: f32[i0], %y: f32[i0]) {
  %a = add(%x, %x)
  %b = sub(%y, %x)
  return %a alias %y, %b alias %x
})",
       "a b"},
      {"Adam", R"(fusion @f(%w: f32[i0, i1], %g: f32[i0, i1], %m: f32[i0, i1], %v: f32[i0, i1]) {
  %c: f64 = constant() {value=0.9, dtype=f64}
  %d: f64 = constant() {value=0.1, dtype=f64}
  %gg = mul(%g, %g)
  %m0 = mul(%m, %c)
  %m1 = mul(%g, %d)
  %nm = add(%m0, %m1)
  %v0 = mul(%v, %c)
  %v1 = mul(%gg, %d)
  %nv = add(%v0, %v1)
  %va = abs(%nv)
  %vd = add(%va, %d)
  %root = sqrt(%vd)
  %step = div(%nm, %root)
  %nw = sub(%w, %step)
  return %nw alias %w, %nm alias %m, %nv alias %v
})",
       "nw nm nv"},
      {"parts of rows, each of which the other reads as well", R"(fusion @f(%x: f32[i0, i1], %y: f32[i0, i1]) {
  %zero: i64 = constant() {value=0.0, dtype=i64}
  %one: i64 = constant() {value=1.0, dtype=i64}
  %at = iota(%zero, %one) {shape=[i1], offset=[0], dtype=i64}
  %three: i64 = constant() {value=3.0, dtype=i64}
  %first = lt(%at, %three)
  %a = where(%first, %x, %y)
  %n = neg(%y)
  %b = where(%first, %n, %x)
  return %a alias %x, %b alias %y
})",
       "a b"},
      {"a value of rows that is written where it is read, beside one of one row",
       R"(fusion @f(%x: f32[i0, i1], %b: f32[i1]) {
  %y = add(%x, %b)
  %c = neg(%b)
  return %y alias %x, %c alias %b
})",
       "y"},
      {"the other way round", R"(fusion @f(%x: f32[i0, i0]) {
  %t = permute(%x) {dims=[1, 0]}
  %y = add(%x, %t)
  return %y alias %x
})",
       ""},
      {"turned", R"(fusion @f(%x: f32[i0, i0]) {
  %y = permute(%x) {dims=[1, 0]}
  %n = neg(%y)
  return %n alias %x
})",
       ""},
      {"the element before", R"(fusion @f(%x: f32[i0]) {
  %p = pad(%x) {widths=[1, -1], value=0.0}
  %y = add(%x, %p)
  return %y alias %x
})",
       ""},
      {"of a turned one beside it", R"(fusion @f(%x: f32[i0, i0], %z: f32[i0, i0]) {
  %t = permute(%z) {dims=[1, 0]}
  %y = add(%x, %t)
  return %y alias %x
})",
       "y"},
      {"rows that are added up first", R"(fusion @f(%x: f32[i0, i1]) {
  %s = sum(%x) {axes=[1], keepdim=true, dtype=null}
  %y = sub(%x, %s)
  return %y alias %x
})",
       "", false},
      {"an input that is returned, too", R"(fusion @f(%x: f32[i0]) {
  %y = neg(%x)
  return %x, %y alias %x
})",
       "", false},
      {"an output that is returned twice", R"(fusion @f(%x: f32[i0]) {
  %y = neg(%x)
  return %y, %y alias %x
})",
       "", false},
      {"an input that is read behind it", R"(fusion @f(%x: f32[i0, i0]) {
  %y = neg(%x)
  %s = segment_set(%y)
  %p = matmul(%x, %s)
  return %y alias %x, %p
})",
       "", false},
      {"a product in the place of what is read no more", R"(fusion @f(%x: f32[i0, i0], %z: f32[i0, i0]) {
  %n = neg(%x)
  %s = segment_set(%n)
  %p = matmul(%s, %z)
  return %p alias %x
})",
       "p", false},
      {"a product of what lies there", R"(fusion @f(%x: f32[i0, i0], %z: f32[i0, i0]) {
  %p = matmul(%x, %z)
  return %p alias %x
})",
       "", false},
  };
  for (InPlaceProgram& program : programs) {
    for (size_t at = 0; (at = program.text.find("f32", at)) != std::string::npos; at += dtype.size())
      program.text.replace(at, 3, dtype);
  }
  return programs;
}

}  // namespace hir::testing
