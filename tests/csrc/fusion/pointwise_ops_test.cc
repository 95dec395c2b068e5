// Goal: each pointwise op computes what its name says, NaN, infinities and -0 included.
// Method: values from Python's math module and by hand, in float64, one row per op; every op of the table must have
// one.
#include <cmath>
#include <limits>
#include <set>

#include "csrc/base/text.h"
#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Case {
  const char* op;
  std::vector<Numbers> operands;
  Numbers results;
};

const Case kCases[] = {
    {"abs", {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}}, {0.0, 0.0, 0.5, 0.75, 2.0, 3.5, kInf, kInf, kNan}},
    {"acos",
     {{0.0, -0.0, 0.5, -0.75, 1.0, -1.0, 2.0, kNan}},
     {1.5707963267948966, 1.5707963267948966, 1.0471975511965979, 2.4188584057763776, 0.0, 3.141592653589793, kNan,
      kNan}},
    {"acosh",
     {{1.0, 2.0, 3.5, 0.5, kInf, -kInf, kNan}},
     {0.0, 1.3169578969248166, 1.9248473002384139, kNan, kInf, kNan, kNan}},
    {"asin",
     {{0.0, -0.0, 0.5, -0.75, 1.0, -1.0, 2.0, kNan}},
     {0.0, -0.0, 0.5235987755982989, -0.848062078981481, 1.5707963267948966, -1.5707963267948966, kNan, kNan}},
    {"asinh",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.48121182505960347, -0.6931471805599453, 1.4436354751788103, -1.9657204716496515, kInf, -kInf, kNan}},
    {"atan",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.4636476090008061, -0.6435011087932844, 1.1071487177940904, -1.2924966677897853, 1.5707963267948966,
      -1.5707963267948966, kNan}},
    {"atanh",
     {{0.0, -0.0, 0.5, -0.75, 1.0, -1.0, 2.0, kNan}},
     {0.0, -0.0, 0.5493061443340548, -0.9729550745276566, kInf, -kInf, kNan, kNan}},
    {"ceil",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan, 0.25, -2.5}},
     {0.0, -0.0, 1.0, -0.0, 2.0, -3.0, kInf, -kInf, kNan, 1.0, -2.0}},
    {"cos",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {1.0, 1.0, 0.8775825618903728, 0.7316888688738209, -0.4161468365471424, -0.9364566872907963, kNan, kNan, kNan}},
    {"cosh",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {1.0, 1.0, 1.1276259652063807, 1.2946832846768448, 3.7621956910836314, 16.572824671057315, kInf, kInf, kNan}},
    {"erf",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.5204998778130465, -0.7111556336535151, 0.9953222650189527, -0.9999992569016276, 1.0, -1.0, kNan}},
    {"erfc",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {1.0, 1.0, 0.4795001221869535, 1.7111556336535152, 0.004677734981047265, 1.9999992569016276, 0.0, 2.0, kNan}},
    {"erfcinv",
     {{0.0, -0.0, 0.5, 1.0, 1.75, 2.0, 2.5, -0.5, 1e-20, kNan, 5e-324}},
     {kInf, kInf, 0.4769362762044699, 0.0, -0.8134198475976187, -kInf, kNan, kNan, 6.601580622355142, kNan,
      27.21329321081295}},
    {"erfinv",
     {{0.0, -0.0, 0.5, -0.75, 0.999, 1.0, -1.0, 2.0, 1e-20, kNan}},
     {0.0, -0.0, 0.4769362762044699, -0.8134198475976187, 2.3267537655135246, kInf, -kInf, kNan, 8.86226925452758e-21,
      kNan}},
    {"exp",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {1.0, 1.0, 1.6487212707001282, 0.4723665527410147, 7.38905609893065, 0.0301973834223185, kInf, 0.0, kNan}},
    {"exp2",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {1.0, 1.0, 1.4142135623730951, 0.5946035575013605, 4.0, 0.08838834764831845, kInf, 0.0, kNan}},
    {"expm1",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.6487212707001282, -0.5276334472589853, 6.38905609893065, -0.9698026165776815, kInf, -1.0, kNan}},
    {"floor",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan, -0.25, 2.5}},
     {0.0, -0.0, 0.0, -1.0, 2.0, -4.0, kInf, -kInf, kNan, -1.0, 2.0}},
    {"frac",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, 0.0, 0.5, -0.75, 0.0, -0.5, kNan, kNan, kNan}},
    {"gelu",
     {{0.0, 0.5, -0.75, 2.0, -3.5, kNan}},
     {0.0, 0.34573123063700656, -0.16997051428265114, 1.9544997361036416, -0.0008142017766243903, kNan}},
    {"imag", {{0.0, -0.0, 0.5, -kInf, kNan}}, {0.0, 0.0, 0.0, 0.0, 0.0}},
    {"isfinite",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0}},
    {"isinf", {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}}, {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0}},
    {"isnan", {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}}, {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0}},
    {"isneginf",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0}},
    {"isposinf",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0}},
    {"isreal", {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}}, {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}},
    {"lgamma",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan, 1.0, -1.0, 10.5}},
     {kInf, kInf, 0.5723649429247001, 1.5757045971498589, 0.0, -1.3090066849930417, kInf, kInf, kNan, 0.0, kInf,
      13.940625219403763}},
    {"log",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {-kInf, -kInf, -0.6931471805599453, kNan, 0.6931471805599453, kNan, kInf, kNan, kNan}},
    {"log10",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {-kInf, -kInf, -0.3010299956639812, kNan, 0.3010299956639812, kNan, kInf, kNan, kNan}},
    {"log1p",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan, -1.0}},
     {0.0, -0.0, 0.4054651081081644, -1.3862943611198906, 1.0986122886681096, kNan, kInf, kNan, kNan, -kInf}},
    {"log2",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {-kInf, -kInf, -1.0, kNan, 1.0, kNan, kInf, kNan, kNan}},
    {"logical_not",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
    {"neg",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {-0.0, 0.0, -0.5, 0.75, -2.0, 3.5, -kInf, kInf, kNan}},
    {"real", {{0.0, -0.0, 0.5, -kInf, kNan}}, {0.0, -0.0, 0.5, -kInf, kNan}},
    {"reciprocal",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {kInf, -kInf, 2.0, -1.3333333333333333, 0.5, -0.2857142857142857, 0.0, -0.0, kNan}},
    {"relu", {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}}, {0.0, 0.0, 0.5, 0.0, 2.0, 0.0, kInf, 0.0, kNan}},
    {"round",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan, 1.5, 2.5, -0.5, -1.5, 1000000000000000.5}},
     {0.0, -0.0, 0.0, -1.0, 2.0, -4.0, kInf, -kInf, kNan, 2.0, 2.0, -0.0, -2.0, 1000000000000000.0}},
    {"rsqrt",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {kInf, -kInf, 1.414213562373095, kNan, 0.7071067811865475, kNan, 0.0, kNan, kNan}},
    {"sigmoid",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.5, 0.5, 0.6224593312018546, 0.320821300824607, 0.8807970779778823, 0.02931223075135632, 1.0, 0.0, kNan}},
    {"sign", {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}}, {0.0, 0.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 0.0}},
    {"signbit", {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}}, {0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0}},
    {"silu",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, kNan}},
     {0.0, -0.0, 0.3112296656009273, -0.24061597561845527, 1.7615941559557646, -0.10259280762974712, kInf, kNan}},
    {"sin",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.479425538604203, -0.6816387600233341, 0.9092974268256817, 0.35078322768961984, kNan, kNan, kNan}},
    {"sinh",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.5210953054937474, -0.82231673193583, 3.626860407847019, -16.542627287634996, kInf, -kInf, kNan}},
    {"sqrt",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.7071067811865476, kNan, 1.4142135623730951, kNan, kInf, kNan, kNan}},
    {"tan",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.5463024898437905, -0.9315964599440725, -2.185039863261519, -0.3745856401585947, kNan, kNan, kNan}},
    {"tanh",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan}},
     {0.0, -0.0, 0.46211715726000974, -0.6351489523872873, 0.9640275800758169, -0.9981778976111987, 1.0, -1.0, kNan}},
    {"tanh_gelu",
     {{0.0, 0.5, -0.75, 2.0, -3.5, kNan}},
     {0.0, 0.34571400982514394, -0.17003944483437966, 1.954597694087775, -0.0006161976553737403, kNan}},
    {"trunc",
     {{0.0, -0.0, 0.5, -0.75, 2.0, -3.5, kInf, -kInf, kNan, 2.5, -2.5}},
     {0.0, -0.0, 0.0, -0.0, 2.0, -3.0, kInf, -kInf, kNan, 2.0, -2.0}},
    {"add",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {3.5, 0.5, 0.0, 0.0, 10.0, -4.0, kInf, kNan, kNan, -kInf, 3.5}},
    {"atan2",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {0.6435011087932844, -0.6435011087932844, 3.141592653589793, -0.0, 1.1659045405098132, -1.1659045405098132,
      1.5707963267948966, kNan, kNan, -3.141592653589793, 1.9195673303788037}},
    {"div",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {0.75, -0.75, kNan, kNan, 2.3333333333333335, -2.3333333333333335, kInf, kNan, kNan, 0.0, -2.75}},
    {"eq",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
    {"fmod",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.5, -1.5, kNan, kNan, 1.0, -1.0, kNan, kNan, kNan, -1.0, 1.5}},
    {"ge",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0}},
    {"gt",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0}},
    {"le",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
    {"logical_and",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}},
    {"logical_or",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}},
    {"lt",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
    {"maximum",
     {{1.5, -1.5, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5}, {2.0, 2.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {2.0, 2.0, 7.0, 3.0, kInf, kNan, kNan, -1.0, 5.5}},
    {"minimum",
     {{1.5, -1.5, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5}, {2.0, 2.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.5, -1.5, 3.0, -7.0, 1.0, kNan, kNan, -kInf, -2.0}},
    {"mod",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.5, -1.5, kNan, kNan, 1.0, -1.0, kNan, kNan, kNan, -1.0, 1.5}},
    {"mul",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {3.0, -3.0, -0.0, -0.0, 21.0, -21.0, kInf, kNan, kNan, kInf, -11.0}},
    {"ne",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}},
    {"nextafter",
     {{1.0, 1.0, 0.0, -0.0, kInf, 2.0, kNan, 1.0, -1.0}, {2.0, -kInf, 1.0, -1.0, 0.0, 2.0, 1.0, kNan, 0.0}},
     {1.0000000000000002, 0.9999999999999999, 5e-324, -5e-324, 1.7976931348623157e+308, 2.0, kNan, kNan,
      -0.9999999999999999}},
    {"pow",
     {{2.0, 2.0, -2.0, -2.0, 4.0, 0.0, kNan, 1.0, 2.0, -8.0},
      {3.0, -1.0, 2.0, 3.0, 0.5, -1.0, 0.0, kNan, 0.3, 0.3333333333333333}},
     {8.0, 0.5, 4.0, -8.0, 2.0, kInf, 1.0, 1.0, 1.2311444133449163, kNan}},
    {"remainder",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {1.5, 0.5, kNan, kNan, 1.0, 2.0, kNan, kNan, kNan, -1.0, -0.5}},
    {"sub",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {-0.5, -3.5, 0.0, -0.0, 4.0, -10.0, kInf, kNan, kNan, kInf, 7.5}},
    {"truediv",
     {{1.5, -1.5, 0.0, -0.0, 7.0, -7.0, kInf, kNan, 1.0, -1.0, 5.5},
      {2.0, 2.0, -0.0, 0.0, 3.0, 3.0, 1.0, 1.0, kNan, -kInf, -2.0}},
     {0.75, -0.75, kNan, kNan, 2.3333333333333335, -2.3333333333333335, kInf, kNan, kNan, 0.0, -2.75}},
    {"addcmul",
     {{1.0, -2.0, 0.0, kInf, kNan, 1.0},
      {2.0, 3.0, -0.0, 1.0, 1.0, kInf},
      {3.0, 0.5, 1.0, 1.0, 1.0, 0.0},
      {0.5, 2.0, 1.0, -1.0, 1.0, 1.0}},
     {4.0, 1.0, 0.0, kInf, kNan, kNan}},
    {"clamp",
     {{-2.0, 0.5, 3.0, kNan, kInf}, {-1.0, -1.0, -1.0, -1.0, -1.0}, {1.0, 1.0, 1.0, 1.0, 1.0}},
     {-1.0, 0.5, 1.0, kNan, 1.0}},
    {"lerp", {{1.0, 1.0, 1.0, 2.0}, {3.0, 3.0, 3.0, -2.0}, {0.0, 1.0, 0.25, 0.5}}, {1.0, 3.0, 1.5, 0.0}},
    {"threshold",
     {{1.0, -1.0, 0.0, kNan, kInf, -kInf, 2.0},
      {0.5, 0.5, 0.0, 0.0, 0.0, 0.0, kNan},
      {9.0, 9.0, -7.0, 9.0, 9.0, kNan, 9.0}},
     {1.0, 9.0, -7.0, kNan, kInf, kNan, 2.0}},
};

// On integers and bools, all exact.
struct IntCase {
  const char* op;
  const char* type;
  std::vector<std::vector<int64_t>> operands;
  const char* result_type;
  std::vector<int64_t> results;
};

constexpr int64_t kLow = std::numeric_limits<int64_t>::min();

const IntCase kIntCases[] = {
    {"abs", "i64", {{-3, 0, kLow}}, "i64", {3, 0, kLow}},
    {"add", "i64", {{1, kLow}, {2, -1}}, "i64", {3, std::numeric_limits<int64_t>::max()}},
    {"add", "i32", {{2147483647, 1}, {1, 1}}, "i32", {-2147483648, 2}},
    {"add", "bool", {{0, 0, 1, 1}, {0, 1, 0, 1}}, "bool", {0, 1, 1, 1}},
    {"mul", "bool", {{0, 0, 1, 1}, {0, 1, 0, 1}}, "bool", {0, 0, 0, 1}},
    {"mul", "i32", {{65536, -3}, {65536, 4}}, "i32", {0, -12}},
    {"sub", "i64", {{1, 5}, {3, 5}}, "i64", {-2, 0}},
    {"neg", "i32", {{5, -2147483648}}, "i32", {-5, -2147483648}},
    {"div", "i64", {{7, -7, 7, 5, kLow}, {2, 2, -2, 0, -1}}, "i64", {3, -3, -3, 0, kLow}},
    {"mod", "i64", {{7, -7, 7, 5, kLow}, {3, 3, -3, 0, -1}}, "i64", {1, -1, 1, 0, 0}},
    {"fmod", "i32", {{7, -7, 7}, {3, 3, -3}}, "i32", {1, -1, 1}},
    {"remainder", "i64", {{7, -7, 7, 5, -6}, {3, 3, -3, 0, 3}}, "i64", {1, 2, -2, 0, 0}},
    {"pow", "i64", {{2, -3, 5, 2, 0}, {10, 3, 0, -1, 0}}, "i64", {1024, -27, 1, 0, 1}},
    {"pow", "i64", {{0, 1, -1, -1, 0, 2}, {-1, -7, -3, -4, 5, 63}}, "i64", {0, 1, -1, 1, 0, INT64_MIN}},
    {"pow", "i32", {{3, 2, 46341, -2}, {21, 32, 2, 31}}, "i32", {1870418611, 0, -2147479015, INT32_MIN}},
    {"maximum", "i32", {{1, -4}, {2, -5}}, "i32", {2, -4}},
    {"minimum", "i32", {{1, -4}, {2, -5}}, "i32", {1, -5}},
    {"maximum", "bool", {{0, 0, 1}, {0, 1, 1}}, "bool", {0, 1, 1}},
    {"minimum", "bool", {{0, 0, 1}, {0, 1, 1}}, "bool", {0, 0, 1}},
    {"bitwise_and", "i64", {{12, -1}, {10, 7}}, "i64", {8, 7}},
    {"bitwise_or", "i64", {{12, -8}, {10, 7}}, "i64", {14, -1}},
    {"bitwise_xor", "i32", {{12, -1}, {10, 7}}, "i32", {6, -8}},
    {"bitwise_not", "i32", {{0, 5}}, "i32", {-1, -6}},
    {"bitwise_not", "bool", {{0, 1}}, "bool", {1, 0}},
    {"bitwise_xor", "bool", {{0, 0, 1, 1}, {0, 1, 0, 1}}, "bool", {0, 1, 1, 0}},
    {"logical_not", "i64", {{0, 5, -1}}, "bool", {1, 0, 0}},
    {"logical_and", "i32", {{0, 2, 2}, {1, 0, 4}}, "bool", {0, 0, 1}},
    {"logical_or", "bool", {{0, 0, 1}, {0, 1, 1}}, "bool", {0, 1, 1}},
    {"eq", "bool", {{0, 0, 1, 1}, {0, 1, 0, 1}}, "bool", {1, 0, 0, 1}},
    {"lt", "bool", {{0, 0, 1, 1}, {0, 1, 0, 1}}, "bool", {0, 1, 0, 0}},
    {"ge", "i64", {{3, kLow}, {3, 0}}, "bool", {1, 0}},
    {"floor", "i64", {{-3, 4}}, "i64", {-3, 4}},
    {"round", "i32", {{-3, 4}}, "i32", {-3, 4}},
    {"relu", "i64", {{-3, 4}}, "i64", {0, 4}},
    {"sign", "i32", {{-3, 0, 4}}, "i32", {-1, 0, 1}},
    {"isnan", "i64", {{-3, 4}}, "bool", {0, 0}},
    {"isinf", "i64", {{-3, 4}}, "bool", {0, 0}},
    {"isfinite", "bool", {{0, 1}}, "bool", {1, 1}},
    {"bitwise_left_shift",
     "i64",
     {{1, -3, 5, 5, 5, 1, 1}, {3, 2, 0, 64, -1, 63, kLow}},
     "i64",
     {8, -12, 5, 0, 0, kLow, 0}},
    {"bitwise_left_shift", "i32", {{1, 3, 1, 1}, {31, 31, 32, 40}}, "i32", {-2147483648, -2147483648, 0, 0}},
    {"bitwise_right_shift",
     "i64",
     {{8, -8, -1, 5, -5, 5, -5}, {3, 1, 63, 64, 64, -1, -1}},
     "i64",
     {1, -4, -1, 0, -1, 0, -1}},
    {"bitwise_right_shift", "i32", {{-8, 8, -8}, {1, 31, 40}}, "i32", {-4, 0, -1}},
    {"logical_right_shift",
     "i64",
     {{8, -1, -1, -1, -1, 5, kLow}, {3, 63, 1, 64, 0, -1, 63}},
     "i64",
     {1, 1, std::numeric_limits<int64_t>::max(), 0, -1, 0, 1}},
    {"logical_right_shift", "i32", {{-1, -8, -1, -1, 7}, {31, 1, 32, 0, 1}}, "i32", {1, 2147483644, 0, -1, 3}},
    {"gcd", "i64", {{12, -12, 0, 0, 7, kLow, kLow}, {18, 18, 5, 0, -7, 0, 6}}, "i64", {6, 6, 5, 0, 7, kLow, 2}},
    {"gcd", "i32", {{-2147483648, 48, 17}, {0, -36, 5}}, "i32", {-2147483648, 12, 1}},
    {"frac", "i64", {{-3, 4}}, "i64", {0, 0}},
    {"imag", "bool", {{0, 1}}, "bool", {0, 0}},
    {"real", "bool", {{0, 1}}, "bool", {0, 1}},
    {"isneginf", "i64", {{-3, kLow}}, "bool", {0, 0}},
    {"isposinf", "bool", {{0, 1}}, "bool", {0, 0}},
    {"isreal", "bool", {{0, 1}}, "bool", {1, 1}},
    {"signbit", "i64", {{-3, 0, 4}}, "bool", {1, 0, 0}},
    {"signbit", "bool", {{0, 1}}, "bool", {0, 0}},
    {"addcmul", "i64", {{1, kLow}, {2, 1}, {3, -1}, {4, 1}}, "i64", {25, std::numeric_limits<int64_t>::max()}},
    {"threshold", "i32", {{-9, 1, 9}, {0, 1, 3}, {5, 6, 7}}, "i32", {5, 6, 9}},
    {"clamp", "i64", {{-9, 1, 9}, {-2, -2, -2}, {3, 3, 3}}, "i64", {-2, 1, 3}},
};

// "%y = op(%a, %b)" on operands of one type and length.
std::string TextOf(const char* op, const std::string& type, size_t operands) {
  std::string params, names;
  for (size_t i = 0; i < operands; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    params += (i == 0 ? "%" : ", %") + name + ": " + type + "[i0]";
    names += (i == 0 ? "%" : ", %") + name;
  }
  return Program(params, std::string("%y = ") + op + "(" + names + ")");
}

TEST(Pointwise, ValuesInFloat64) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.op);
    std::vector<HostTensor> inputs;
    for (const Numbers& operand : c.operands) inputs.push_back(F64({std::ssize(operand)}, operand));
    const Numbers got = ToDoubles(Execute(TextOf(c.op, "f64", inputs.size()), inputs));
    ASSERT_EQ(got.size(), c.results.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double want = c.results[i];
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
      } else if (std::isinf(want) || want == 0) {
        EXPECT_EQ(got[i], want) << "element " << i;
        EXPECT_EQ(std::signbit(got[i]), std::signbit(want)) << "element " << i;
      } else {
        EXPECT_NEAR(got[i], want, 4e-16 * std::fabs(want) + 1e-17) << "element " << i;
      }
    }
  }
}

TEST(Pointwise, ValuesOfIntegersAndBools) {
  for (const IntCase& c : kIntCases) {
    SCOPED_TRACE(testing::Message() << c.op << " of " << c.type);
    std::vector<HostTensor> inputs;
    for (const auto& operand : c.operands) {
      inputs.push_back(TensorOfInts(*ParseDType(c.type), {std::ssize(operand)}, operand));
    }
    const HostTensor got = Execute(TextOf(c.op, c.type, inputs.size()), inputs);
    EXPECT_EQ(DTypeName(got.dtype), c.result_type);
    EXPECT_EQ(ToInts(got), c.results);
  }
}

TEST(Pointwise, EveryOpHasAValue) {
  std::set<std::string> seen = {"where"};  // Below.
  for (const Case& c : kCases) seen.insert(c.op);
  for (const IntCase& c : kIntCases) seen.insert(c.op);
  for (const ir::OpInfo& info : kFusionOps.ops) {
    const auto op = static_cast<FusionOp>(info.code);
    const bool is_row = IsPointwise(op) && op != FusionOp::kCast;
    EXPECT_TRUE(!is_row || seen.contains(std::string(info.name))) << info.name;
  }
}

TEST(Pointwise, WhereTakesTheChosenSide) {
  const HostTensor y = Execute(Program("%c: bool[2, 1], %a: f32[3], %b: i32[2, 3]", "%y = where(%c, %a, %b)"),
                               {Bools({2, 1}, {1, 0}), F32({3}, {0.5, kNan, 2}), I32({2, 3}, {1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(TypeName(y), "f32[2, 3]");
  const Numbers values = ToDoubles(y);
  EXPECT_EQ(values[0], 0.5);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_EQ(Numbers(values.begin() + 3, values.end()), (Numbers{4, 5, 6}));
}

// Each op's result is rounded once to its type; what is inside one op is not.
TEST(Pointwise, RoundsEachResultOnce) {
  const HostTensor sum = Execute(Program("%a: bf16[1], %b: bf16[1]", "%y = add(%a, %b)"),
                                 {Tensor(DType::kBFloat16, {1}, {256}), Tensor(DType::kBFloat16, {1}, {1})});
  EXPECT_EQ(ToDoubles(sum)[0], 256);  // bf16 has 8 bits.
  const HostTensor wide = Execute(Program("%a: bf16[1], %b: f16[1]", "%y = add(%a, %b)"),
                                  {Tensor(DType::kBFloat16, {1}, {256}), Tensor(DType::kFloat16, {1}, {1})});
  EXPECT_EQ(TypeName(wide), "f32[1]");
  EXPECT_EQ(ToDoubles(wide)[0], 257);
  const HostTensor half = Execute(Program("%a: f16[2]", "%y = mul(%a, %a)"), {Tensor(DType::kFloat16, {2}, {300, 3})});
  EXPECT_EQ(ToDoubles(half), (Numbers{kInf, 9}));
}

// A step of the operands' own type, not of what they are computed in.
TEST(Pointwise, NextAfterOfFloat32) {
  const HostTensor y = Execute(Program("%a: f32[4], %b: f32[4]", "%y = nextafter(%a, %b)"),
                               {F32({4}, {1, 1, 0, kInf}), F32({4}, {2, -kInf, -1, 0})});
  EXPECT_EQ(ToDoubles(y), (Numbers{1 + 0x1p-23, 1 - 0x1p-24, -0x1p-149, 0x1.fffffep127}));
}

// Normal, subnormal and infinite, through 0, past the greatest.
TEST(Pointwise, NextAfterOf16Bits) {
  const Numbers towards = {2, -kInf, -1, 0, 0, kInf, 0, kNan, 1, -kInf};
  const auto next = [&](DType dtype, const Numbers& x) {
    const std::string_view name = DTypeName(dtype);
    return ToDoubles(Execute(Program(base::Cat("%a: ", name, "[10], %b: ", name, "[10]"), "%y = nextafter(%a, %b)"),
                             {Tensor(dtype, {10}, x), Tensor(dtype, {10}, towards)}));
  };
  const auto expect = [](const Numbers& got, const Numbers& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        EXPECT_EQ(got[i], want[i]) << i;
        EXPECT_EQ(std::signbit(got[i]), std::signbit(want[i])) << i;
      }
    }
  };
  expect(next(DType::kBFloat16, {1, 1, 0, kInf, -0x1p-133, 0x1.fep127, -kInf, kInf, 1, 0x1p-126}),
         {1 + 0x1p-7, 1 - 0x1p-8, -0x1p-133, 0x1.fep127, -0.0, kInf, -0x1.fep127, kNan, 1, 0x1p-126 - 0x1p-133});
  expect(next(DType::kFloat16, {1, 1, 0, kInf, -0x1p-24, 65504, -kInf, kInf, 1, 0x1p-14}),
         {1 + 0x1p-10, 1 - 0x1p-11, -0x1p-24, 65504, -0.0, kInf, -65504, kNan, 1, 0x1p-14 - 0x1p-24});
}

TEST(Cast, ConvertsAsDocumented) {
  const Numbers x = {2.7, -2.7, kNan, kInf, -kInf, 3e9, -0.0, 1e20};
  const auto cast = [&](const char* to) {
    return Execute(Program("%x: f64[8]", std::string("%y = cast(%x) {dtype=") + to + "}"), {F64({8}, x)});
  };
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ToInts(cast("i64")), (std::vector<int64_t>{2, -2, 0, kHigh, kLow, 3000000000, 0, kHigh}));
  EXPECT_EQ(ToInts(cast("i32")), (std::vector<int64_t>{2, -2, 0, 2147483647, -2147483648, 2147483647, 0, 2147483647}));
  EXPECT_EQ(ToInts(cast("bool")), (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 0, 1}));
  EXPECT_EQ(ToDoubles(cast("f16"))[0], 2.69921875);
  const HostTensor wrapped = Execute(Program("%x: i64[2]", "%y = cast(%x) {dtype=i32}"), {I64({2}, {4294967297, -5})});
  EXPECT_EQ(ToInts(wrapped), (std::vector<int64_t>{1, -5}));
}

TEST(Scalars, AreHostNumbersAndFold) {
  const std::string text = Program("%x: f32[2], %s: f64",
                                   "%a: f64 = constant() {value=1024.0, dtype=f64}\n  %b = reciprocal(%a)\n"
                                   "  %c = mul(%b, %s)\n  %y = add(%x, %c)");
  const HostTensor y = Execute(text, {F32({2}, {1, 2}), F64({}, {512})});
  EXPECT_EQ(TypeName(y), "f32[2]");
  EXPECT_EQ(ToDoubles(y), (Numbers{1.5, 2.5}));
}

// A chain of scalar ops where each reads the one before twice: no recursion, no doubling of work.
TEST(Scalars, LongChainsAreFine) {
  std::string body = "%s0 = add(%s, %s)\n";
  for (int i = 1; i < 20000; ++i) {
    const std::string before = "%s" + std::to_string(i - 1);
    body += "%s" + std::to_string(i) + " = minimum(" + before + ", " + before + ")\n";
  }
  body += "%y = add(%x, %s19999)";
  EXPECT_EQ(ToDoubles(Execute(Program("%x: f32[1], %s: f64", body), {F32({1}, {1}), F64({}, {2})})), Numbers{5});
}

}  // namespace
}  // namespace hir::fusion
