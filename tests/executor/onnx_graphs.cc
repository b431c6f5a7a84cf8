#include "tests/executor/onnx_graphs.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>

#include "tests/support/onnx_file.h"

namespace gpulet::executor::onnx_graphs {
namespace {

namespace onnx = support::onnx;
using Shape = std::vector<std::int64_t>;
using Names = std::vector<std::string>;

constexpr int kOldestOperators = 11;
constexpr int kNewestOperators = 21;
constexpr std::size_t kHighestRank = 5;
constexpr std::int64_t kMostElements = 300;
constexpr std::size_t kSlotBytes = 96;
// One graph of so many is refused.
constexpr std::uint32_t kFlawedEvery = 10;

bool is_real(DataType type) { return type == DataType::fp32 || type == DataType::fp64; }
// Those types for which the library has all arithmetic.
bool is_common(DataType type) {
  return is_real(type) || type == DataType::int32 || type == DataType::int64;
}
bool is_integer(DataType type) {
  return type == DataType::int64 || type == DataType::int32 || type == DataType::int16 ||
         type == DataType::int8 || type == DataType::uint8;
}

std::int64_t elements_of(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::string joined(const Shape& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += "_" + std::to_string(number);
  return text;
}

class Maker {
 public:
  explicit Maker(std::uint32_t seed)
      : random_(seed),
        operators_(kOldestOperators +
                   static_cast<int>(seed % (kNewestOperators - kOldestOperators + 1))) {
    const std::size_t kind = below(5);
    whole_ = kind < 2;
    one_row_ = kind == 2;
    model_.operators = static_cast<std::uint64_t>(operators_);
    const std::size_t count = 1 + below(3);
    for (std::size_t i = 0; i < count; ++i) add_input("x" + std::to_string(i));
    if (below(3) == 0) add_optional_input();
    for (std::size_t steps = 1 + below(9); steps > 0; --steps) add_step();
    for (std::size_t outputs = 1 + below(5); outputs > 0; --outputs) add_output();
  }

  void add_flaw(std::uint32_t kind);
  [[nodiscard]] Graph finish() &&;

 private:
  [[nodiscard]] std::size_t below(std::size_t limit) { return random_() % limit; }
  [[nodiscard]] std::int64_t batch_dimensions() const { return whole_ ? 0 : 1; }
  [[nodiscard]] std::size_t rank_of(const Value& value) const {
    return value.shape.size() + static_cast<std::size_t>(batch_dimensions());
  }
  [[nodiscard]] Value any_value() { return values_[below(values_.size())]; }
  // Bfloat16 came later than the operations.
  [[nodiscard]] bool is_taken(DataType type, int since) const {
    return type != DataType::bf16 || operators_ >= since;
  }

  // ---- declarations
  [[nodiscard]] onnx::Dimension dimension(std::int64_t size) {
    if (below(4) != 0) return {size};
    if (below(2) == 0) return {std::int64_t{-1}};
    return {-1, "d" + std::to_string(symbols_++)};
  }
  [[nodiscard]] onnx::Tensor declared(const Value& value) {
    std::vector<onnx::Dimension> shape;
    if (!whole_)
      shape.push_back(one_row_ ? onnx::Dimension(std::int64_t{1}) : onnx::Dimension("n"));
    for (const std::int64_t size : value.shape) shape.push_back(dimension(size));
    return {value.name, type_of(value.type).number, shape};
  }
  void add_input(const std::string& name);
  void add_optional_input();
  void add_output();

  // ---- constants, each once
  std::string integers(const Shape& numbers) {
    std::string name = "integers" + joined(numbers);
    if (constants_.insert(name).second)
      model_.constants.push_back(onnx::integers_constant(name, numbers));
    return name;
  }
  std::string floats(const Shape& shape, const std::vector<float>& numbers) {
    std::string name = "floats" + std::to_string(model_.weights.size());
    model_.weights.push_back({name, shape, numbers});
    return name;
  }

  // One number of the type of `x`.
  std::string number_like(const Value& x, std::int64_t number) {
    if (x.type == DataType::int64) return integers({number});
    return node("Cast", {integers({number})},
                {onnx::integer_attribute("to", type_of(x.type).number)});
  }

  // ---- nodes
  [[nodiscard]] std::string new_name() { return "v" + std::to_string(names_++); }
  std::string node(const std::string& operation, const Names& inputs,
                   std::vector<std::string> attributes = {}) {
    std::string name = new_name();
    model_.nodes.push_back({operation, inputs, {name}, std::move(attributes)});
    return name;
  }
  void keep(const Value& like, const std::string& name) { keep(like, name, like.type, like.shape); }
  void keep(const Value& like, const std::string& name, DataType type, Shape shape) {
    values_.push_back({name, type, std::move(shape), like.exact});
  }
  // Gives the axes as the version of the operator takes them.
  std::string node_with_axes(const std::string& operation, const std::string& input,
                             const Shape& axes, bool as_input,
                             std::vector<std::string> attributes = {}) {
    if (as_input) return node(operation, {input, integers(axes)}, std::move(attributes));
    attributes.push_back(onnx::integers_attribute("axes", axes));
    return node(operation, {input}, std::move(attributes));
  }

  void add_step();
  // Each adds a value that is made of `x`, or nothing where the operators do not have it.
  void add_move(const Value& x);
  void add_slice(const Value& x, std::size_t axis);
  void add_arithmetic(const Value& x);
  void add_comparison(const Value& x);
  void add_selection(const Value& x);
  void add_cast(const Value& x);
  void add_reduction(const Value& x);
  void add_product(const Value& x);
  void add_branch(const Value& x);
  void add_loop(const Value& x);
  void add_constant(const Value& x);

  std::mt19937 random_;
  int operators_;
  bool whole_ = false;
  bool one_row_ = false;  // the file takes batches of one
  onnx::Model model_;
  std::vector<Value> values_;
  std::vector<Value> inputs_;
  std::vector<Value> outputs_;
  std::set<std::string> constants_;
  int symbols_ = 0;
  int names_ = 0;
  std::optional<std::string> refused_;
  bool cut_off_ = false;
};

void Maker::add_input(const std::string& name) {
  Value input{name, kTypes[below(std::size(kTypes))].type};
  constexpr int kFirstWithBf16 = 13;
  if (input.type == DataType::bf16 && operators_ < kFirstWithBf16) input.type = DataType::fp32;
  const std::size_t rank = below(kHighestRank + 1 - static_cast<std::size_t>(batch_dimensions()));
  for (std::size_t i = 0; i < rank; ++i)
    input.shape.push_back(static_cast<std::int64_t>(1 + below(3)));
  model_.inputs.push_back(declared(input));
  inputs_.push_back(input);
  values_.push_back(input);
}

// It has a value in the file. The entry lists it, or does not.
void Maker::add_optional_input() {
  const std::int64_t size = whole_ ? static_cast<std::int64_t>(1 + below(3)) : 1;
  const Value input{"optional", DataType::fp32, whole_ ? Shape{size} : Shape{}};
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < size; ++i) numbers.push_back(0.5F + static_cast<float>(i));
  model_.inputs.push_back({input.name, onnx::kFloat, std::vector<onnx::Dimension>{size}});
  const bool listed = below(2) == 0;
  if (listed && !whole_) model_.inputs.back() = declared(input);
  model_.weights.push_back({input.name, {size}, numbers});
  if (listed) inputs_.push_back(input);
  if (listed || whole_ || one_row_) {
    values_.push_back(input);
    return;
  }
  for (const Value& x : std::vector(values_)) {
    if (x.type == DataType::fp32) return keep(x, node("Add", {x.name, input.name}));
  }
}

// ---- operations

void Maker::add_step() {
  const Value x = any_value();
  switch (below(12)) {
    case 0:
      if (is_taken(x.type, 13)) keep(x, node("Identity", {x.name}));
      return;
    case 1:
    case 2:
      return add_move(x);
    case 3:
      return add_arithmetic(x);
    case 4:
      return add_comparison(x);
    case 5:
      return add_selection(x);
    case 6:
      return add_cast(x);
    case 7:
      return add_reduction(x);
    case 8:
      return add_product(x);
    case 9:
      return add_branch(x);
    case 10:
      return add_loop(x);
    default:
      return add_constant(x);
  }
}

// Moves elements and changes the shape.
void Maker::add_move(const Value& x) {
  if (!is_taken(x.type, 13)) return;
  const std::int64_t first = batch_dimensions();
  const std::size_t rank = x.shape.size();
  const std::size_t axis = rank == 0 ? 0 : below(rank);
  const auto whole_axis = static_cast<std::int64_t>(axis) + first;
  Shape shape = x.shape;
  switch (rank == 0 ? 5 + below(3) : below(8)) {
    case 0:
      if (elements_of(shape) * 2 > kMostElements) return;
      shape[axis] *= 2;
      return keep(x,
                  node("Concat", {x.name, x.name}, {onnx::integer_attribute("axis", whole_axis)}),
                  x.type, shape);
    case 1: {
      Shape order;
      for (std::int64_t i = 0; i < first; ++i) order.push_back(i);
      for (std::size_t i = 0; i < rank; ++i) {
        const std::size_t from = (i + axis) % rank;
        order.push_back(static_cast<std::int64_t>(from) + first);
        shape[i] = x.shape[from];
      }
      return keep(x, node("Transpose", {x.name}, {onnx::integers_attribute("perm", order)}), x.type,
                  shape);
    }
    case 2:
      return add_slice(x, axis);
    case 3:
      shape[axis] = 1;
      return keep(
          x, node("Gather", {x.name, integers({0})}, {onnx::integer_attribute("axis", whole_axis)}),
          x.type, shape);
    case 4:
      if (shape[axis] != 1) return;
      shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
      return keep(x, node_with_axes("Squeeze", x.name, {whole_axis}, operators_ >= 13), x.type,
                  shape);
    case 5:
      if (rank_of(x) >= kHighestRank) return;
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), 1);
      return keep(x, node_with_axes("Unsqueeze", x.name, {whole_axis}, operators_ >= 13), x.type,
                  shape);
    case 6:
      return keep(x, node("Flatten", {x.name}, {onnx::integer_attribute("axis", first)}), x.type,
                  whole_ ? Shape{1, elements_of(shape)} : Shape{elements_of(shape)});
    default: {
      Shape wanted(static_cast<std::size_t>(first), 0);  // 0: as before
      wanted.push_back(elements_of(shape));
      return keep(x, node("Reshape", {x.name, integers(wanted)}), x.type, {elements_of(shape)});
    }
  }
}

// The first element of an axis.
void Maker::add_slice(const Value& x, std::size_t axis) {
  Shape shape = x.shape;
  shape[axis] = 1;
  const Shape axes{static_cast<std::int64_t>(axis) + batch_dimensions()};
  keep(x, node("Slice", {x.name, integers({0}), integers({1}), integers(axes)}), x.type, shape);
}

void Maker::add_arithmetic(const Value& x) {
  switch (x.type) {
    case DataType::bytes: {
      if (operators_ < 20) return;
      if (constants_.insert("mark").second)
        model_.constants.push_back(onnx::strings_constant("mark", {1}, {"!"}));
      // A scalar and a list of one are a list of one.
      if (rank_of(x) == 0) return;
      return keep(x, node("StringConcat", {x.name, "mark"}));
    }
    case DataType::boolean:
      return keep(x, node("Not", {x.name}));
    case DataType::fp32:
    case DataType::fp64:
    case DataType::int32:
    case DataType::int64: {
      constexpr const char* kOperations[] = {"Add", "Sub", "Neg", "Abs"};
      const std::size_t chosen = below(std::size(kOperations));
      return keep(x, node(kOperations[chosen], chosen < 2 ? Names{x.name, x.name} : Names{x.name}));
    }
    case DataType::int8:
    case DataType::int16:
    case DataType::uint8:
      return keep(x, node("Abs", {x.name}));
    default:
      return;
  }
}

void Maker::add_comparison(const Value& x) {
  if (!x.exact || !(is_common(x.type) || x.type == DataType::boolean)) return;
  Value other = x;
  for (const Value& each : values_) {
    if (each.exact && each.type == x.type && each.shape == x.shape) other = each;
  }
  const bool equal = x.type == DataType::boolean || below(2) == 0;
  keep(x, node(equal ? "Equal" : "Greater", {x.name, other.name}), DataType::boolean, x.shape);
}

void Maker::add_selection(const Value& x) {
  if (!(is_common(x.type) || x.type == DataType::uint8 || x.type == DataType::bytes)) return;
  Value other = x;
  std::optional<Value> condition;
  for (const Value& each : values_) {
    if (each.type == x.type && each.shape == x.shape) other = each;
    if (each.type == DataType::boolean && each.shape == x.shape) condition = each;
  }
  if (!condition && (!x.exact || !is_common(x.type) || rank_of(x) == 0)) return;
  const std::string chosen =
      condition ? condition->name : node("Equal", {x.name, number_like(x, 1)});
  keep({.name = {}, .exact = x.exact && other.exact}, node("Where", {chosen, x.name, other.name}),
       x.type, x.shape);
}

void Maker::add_cast(const Value& x) {
  std::vector<DataType> targets;
  if (is_integer(x.type) || x.type == DataType::boolean) {
    targets = {DataType::fp32,  DataType::fp64,  DataType::int64,  DataType::int32,
               DataType::int16, DataType::uint8, DataType::boolean};
    if (x.type == DataType::int64) targets.push_back(DataType::bytes);
  } else if (is_real(x.type)) {
    targets = {DataType::fp32, DataType::fp64, DataType::fp16};
    if (operators_ >= 13) targets.push_back(DataType::bf16);
    // A number that is no integer, or has no end, has no defined one.
    if (x.exact) targets.insert(targets.end(), {DataType::int64, DataType::boolean});
  } else if (x.type == DataType::fp16 || (x.type == DataType::bf16 && operators_ >= 13)) {
    targets = {DataType::fp32};
  }
  if (targets.empty()) return;
  const DataType type = targets[below(targets.size())];
  const bool shorter = type == DataType::fp16 || type == DataType::bf16;
  keep({.name = {}, .exact = x.exact && !shorter},
       node("Cast", {x.name}, {onnx::integer_attribute("to", type_of(type).number)}), type,
       x.shape);
}

void Maker::add_reduction(const Value& x) {
  if (x.shape.empty() || !is_common(x.type)) return;
  const std::size_t axis = below(x.shape.size());
  const std::int64_t whole_axis = static_cast<std::int64_t>(axis) + batch_dimensions();
  const bool keeps = below(2) == 0;
  Shape shape = x.shape;
  if (keeps) {
    shape[axis] = 1;
  } else {
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  const auto keep_dimensions = onnx::integer_attribute("keepdims", keeps ? 1 : 0);
  const std::size_t kind = below(3);
  if (kind == 0 && x.exact && (x.type == DataType::fp32 || x.type == DataType::int32)) {
    return keep(
        x, node("ArgMax", {x.name}, {onnx::integer_attribute("axis", whole_axis), keep_dimensions}),
        DataType::int64, shape);
  }
  if (kind == 1)
    return keep(
        x, node_with_axes("ReduceMax", x.name, {whole_axis}, operators_ >= 18, {keep_dimensions}),
        x.type, shape);
  keep({.name = {}, .exact = x.exact && !is_real(x.type)},
       node_with_axes("ReduceSum", x.name, {whole_axis}, operators_ >= 13, {keep_dimensions}),
       x.type, shape);
}

void Maker::add_product(const Value& x) {
  if (x.shape.empty() || !is_real(x.type)) return;
  const Value rough{.name = {}, .exact = false};
  const auto last = static_cast<std::int64_t>(rank_of(x)) - 1;
  if (x.type == DataType::fp64 || below(2) == 0)
    return keep(rough, node("Softmax", {x.name}, {onnx::integer_attribute("axis", last)}), x.type,
                x.shape);
  const std::int64_t size = x.shape.back();
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < 2 * size; ++i) numbers.push_back(static_cast<float>(i % 5) - 1.5F);
  Shape shape = x.shape;
  shape.back() = 2;
  if (elements_of(shape) > kMostElements) return;
  keep(rough, node("MatMul", {x.name, floats({size, 2}, numbers)}), x.type, shape);
}

// ---- control flow

// One branch gives the value, and the other one may negate it.
void Maker::add_branch(const Value& x) {
  if (!is_taken(x.type, 16)) return;
  std::string condition;
  for (const Value& each : values_) {
    if (whole_ && each.type == DataType::boolean && elements_of(each.shape) == 1)
      condition = each.name;
  }
  if (condition.empty()) {
    condition = node("Cast", {integers({static_cast<std::int64_t>(below(2))})},
                     {onnx::integer_attribute("to", type_of(DataType::boolean).number)});
  }
  const std::string name = new_name();
  const auto branch = [&](const std::string& operation, const std::string& result) {
    return encode_graph(onnx::Model{.outputs = {{result, type_of(x.type).number}},
                                    .nodes = {{operation, {x.name}, {result}}}});
  };
  model_.nodes.push_back(
      {"If",
       {condition},
       {name},
       {onnx::graph_attribute("then_branch", branch("Identity", name + "_then")),
        onnx::graph_attribute("else_branch",
                              branch(is_common(x.type) ? "Neg" : "Identity", name + "_else"))}});
  keep(x, name);
}

// Doubles a value in each of some rounds, perhaps none. Without a batch it also gives the value of
// each round.
void Maker::add_loop(const Value& x) {
  if (!is_taken(x.type, 16)) return;
  const auto rounds = static_cast<std::int64_t>(below(4));
  const std::string name = new_name();
  const int type = type_of(x.type).number;
  const bool doubles = is_common(x.type);
  onnx::Model body{
      .inputs = {{name + "_round", onnx::kInt64, std::vector<onnx::Dimension>{}},
                 {name + "_goes", type_of(DataType::boolean).number,
                  std::vector<onnx::Dimension>{}},
                 {name + "_before", type}},
      .outputs = {{name + "_goes_on", type_of(DataType::boolean).number}, {name + "_after", type}},
      .nodes = {{"Identity", {name + "_goes"}, {name + "_goes_on"}},
                {doubles ? "Add" : "Identity",
                 doubles ? Names{name + "_before", name + "_before"} : Names{name + "_before"},
                 {name + "_after"}}}};
  Names outputs{name};
  const bool lists = whole_ && rounds > 0 && rank_of(x) < kHighestRank &&
                     elements_of(x.shape) * rounds <= kMostElements && below(2) == 0;
  if (lists) {
    body.outputs.push_back({name + "_each", type});
    body.nodes.push_back({"Identity", {name + "_before"}, {name + "_each"}});
    outputs.push_back(name + "_list");
    Shape shape = x.shape;
    shape.insert(shape.begin(), rounds);
    keep(x, outputs.back(), x.type, shape);
  }
  model_.nodes.push_back({"Loop",
                          {integers({rounds}), "", x.name},
                          outputs,
                          {onnx::graph_attribute("body", encode_graph(body))}});
  keep(x, name);
}

// ---- constants

void Maker::add_constant(const Value& x) {
  const Value exact;
  switch (whole_ || one_row_ ? below(3) : 2) {
    case 0: {  // an initializer
      const Shape shape{1, 2};
      return keep(exact, floats(shape, {3, static_cast<float>(names_)}), DataType::fp32,
                  whole_ ? shape : Shape{2});
    }
    case 1:
      return keep(exact,
                  node("Constant", {},
                       {onnx::tensor_attribute("value", onnx::integers_constant("c", {9}))}),
                  DataType::int64, whole_ ? Shape{1} : Shape{});
    default: {  // as many rows as another value has
      if (!is_taken(x.type, 13)) return;
      const std::string shape = node("Shape", {x.name});
      if (whole_) return keep(exact, node("ConstantOfShape", {shape}), DataType::fp32, x.shape);
      const std::string rows = node("Slice", {shape, integers({0}), integers({1})});
      return keep(exact, node("Expand", {integers({7}), rows}), DataType::int64, {});
    }
  }
}

// ---- outputs

void Maker::add_output() {
  Value output = any_value();
  const bool taken = std::any_of(outputs_.begin(), outputs_.end(),
                                 [&output](const Value& each) { return each.name == output.name; });
  if (taken) {  // an equal value
    if (!is_taken(output.type, 13)) return;
    output.name = node("Identity", {output.name});
  }
  onnx::Tensor tensor = declared(output);
  if (below(8) == 0) tensor.shape.reset();
  model_.outputs.push_back(tensor);
  outputs_.push_back(output);
}

// ---- what is refused

void Maker::add_flaw(std::uint32_t kind) {
  const Value x{"flawed", DataType::fp32, {2}};
  const auto add = [this](const Value& input, int type) {
    onnx::Tensor tensor = declared(input);
    tensor.type = type;
    model_.inputs.push_back(tensor);
    inputs_.push_back(input);
  };
  const auto give = [this](const Value& output, const onnx::Tensor& tensor) {
    model_.outputs.push_back(tensor);
    outputs_.push_back(output);
  };
  constexpr int kUint16 = 4;
  constexpr int kUint32 = 12;
  constexpr int kUint64 = 13;
  constexpr int kComplex64 = 14;
  refused_ = "output";
  switch (kind) {
    case 0:  // types that are not served
    case 1: {
      const std::pair<int, DataType> types[] = {{kUint16, DataType::int16},
                                                {kUint32, DataType::int32},
                                                {kUint64, DataType::int64},
                                                {kComplex64, DataType::fp64}};
      const auto& [number, nearest] = types[below(std::size(types))];
      const Value odd{x.name, nearest, x.shape};
      add(odd, number);
      refused_ = odd.name;
      return give({odd.name, odd.type, odd.shape}, model_.inputs.back());
    }
    case 2: {
      add(x, onnx::kFloat);
      const Value sequence{node("SequenceConstruct", {x.name}), DataType::fp32, {2}};
      const std::string element =
          onnx::content_field(1, onnx::number_field(1, static_cast<std::uint64_t>(onnx::kFloat)));
      refused_ = sequence.name;
      return give(sequence,
                  {.name = sequence.name,
                   .other_type = onnx::content_field(4, onnx::content_field(1, element))});
    }
    case 3: {  // no elements
      add(x, onnx::kFloat);
      const Shape axes{batch_dimensions()};
      const Value none{node("Slice", {x.name, integers({0}), integers({0}), integers(axes)}),
                       DataType::fp32,
                       {1}};
      refused_ = none.name;
      return give(none, {none.name, onnx::kFloat});
    }
    case 4: {  // as many elements as the input has that are not 0
      add(x, onnx::kFloat);
      const Value found{node("NonZero", {x.name}), DataType::int64, {1, 1000}};
      refused_ = found.name;
      return give(found, {found.name, onnx::kInt64});
    }
    case 5: {
      add(x, onnx::kFloat);
      const Value unknown{node("Fancy", {x.name}), DataType::fp32, {2}};
      refused_ = "Fancy";
      return give(unknown, {unknown.name, onnx::kFloat});
    }
    case 6: {  // an operation of other types
      add(x, onnx::kFloat);
      const Value wrong{node("Not", {x.name}), DataType::fp32, {2}};
      refused_ = "Not";
      return give(wrong, {wrong.name, onnx::kFloat});
    }
    case 7:  // another shape than declared
      add(x, onnx::kFloat);
      model_.inputs.back().shape->back() = onnx::Dimension(std::int64_t{3});
      refused_ = x.name;
      return give(x, {x.name, onnx::kFloat});
    default:
      refused_ = "";
      cut_off_ = true;
  }
}

// With nodes that make BF16 of wide tensors and wide ones of BF16, and without the values of inputs
// that are given.
onnx::Model for_node(onnx::Model model, const std::vector<Value>& inputs) {
  for (const Value& input : inputs)
    std::erase_if(model.weights, [&](const onnx::Weight& each) { return each.name == input.name; });
  const int bf16 = type_of(DataType::bf16).number;
  const auto cast = [&model](const std::string& from, const std::string& to, int type, bool first) {
    const onnx::Node node{"Cast", {from}, {to}, {onnx::integer_attribute("to", type)}};
    model.nodes.insert(first ? model.nodes.begin() : model.nodes.end(), node);
  };
  std::set<std::string> given;
  for (onnx::Tensor& input : model.inputs) {
    if (input.type != bf16) continue;
    cast(input.name + "_wide", input.name, bf16, true);
    input.name += "_wide";
    input.type = onnx::kFloat;
    given.insert(input.name);
  }
  for (onnx::Tensor& output : model.outputs) {
    if (output.type != bf16) continue;
    // An output that is an input keeps its name.
    if (!given.contains(output.name + "_wide"))
      cast(output.name, output.name + "_wide", onnx::kFloat, false);
    output.name += "_wide";
    output.type = onnx::kFloat;
  }
  return model;
}

Graph Maker::finish() && {
  Graph graph{.file = encode(model_),
              .for_node = encode(for_node(model_, inputs_)),
              .operators = operators_,
              .whole = whole_,
              .max_batch = whole_ || one_row_ ? 1U : 4U,
              .inputs = inputs_,
              .outputs = outputs_,
              .operations = {},
              .refused = refused_};
  for (const onnx::Node& each : model_.nodes) graph.operations.push_back(each.operation);
  if (cut_off_) graph.file.resize(graph.file.size() / 2);
  return graph;
}

}  // namespace

ElementType type_of(DataType type) {
  for (const ElementType& each : kTypes) {
    if (each.type == type) return each;
  }
  throw std::invalid_argument("no type of ONNX");
}

Graph generate(std::uint32_t seed) {
  Maker maker(seed);
  constexpr std::uint32_t kFlaws = 9;
  if (seed % kFlawedEvery == kFlawedEvery - 1) maker.add_flaw(seed / kFlawedEvery % kFlaws);
  return std::move(maker).finish();
}

std::vector<TensorSpec> specs_of(const Graph& graph, const std::vector<Value>& values) {
  std::vector<TensorSpec> specs;
  for (const Value& value : values) {
    TensorSpec spec{value.name, value.type, value.shape};
    spec.whole = graph.whole;
    if (spec.type == DataType::bytes) spec.max_bytes = kSlotBytes * element_count(spec);
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace gpulet::executor::onnx_graphs
