# cmake -DOUT=x.cc -DHEADER=x.h -DFUNCTION=Names -DFILES=a;b -P embed.cmake: a source with the bytes of FILES, as the
# function that HEADER declares: their names, sorted, and what is in them.
set(arrays "")
set(rows "")
set(index 0)
foreach(file ${FILES})
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  cmake_path(GET file FILENAME name)
  string(APPEND arrays "constexpr unsigned char kBytes${index}[] = {\n${bytes}};\n")
  string(APPEND rows "      {\"${name}\", {reinterpret_cast<const char*>(kBytes${index}), sizeof(kBytes${index})}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT}
  "// Made by cmake/embed.cmake.\n"
  "#include \"${HEADER}\"\n\n"
  "namespace hir::service {\n"
  "namespace {\n${arrays}}\n\n"
  "std::map<std::string_view, std::string_view> ${FUNCTION}() {\n  return {\n${rows}  };\n}\n\n"
  "}  // namespace hir::service\n")
