#include "weft/ops/function.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/error.h"
#include "weft/comm/group.h"
#include "weft/param/param_unit.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Lets a graph node own an Op: the context's saved tensors would keep references of their own.
struct OpHolder : torch::CustomClassHolder {
  OpHolder(std::shared_ptr<Op> held, size_t n) : op(std::move(held)), n_inputs(n) {}
  std::shared_ptr<Op> op;
  size_t n_inputs;
};

// "[512, 256] [512]"
std::string shapes_of(at::TensorList tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    text += fmt::format("{}[{}]", text.empty() ? "" : " ", fmt::join(tensor.sizes().vec(), ", "));
  }
  return text;
}

template <class Run>
variable_list in_span(const Op& op, Pass pass, at::TensorList taken, const Run& run) {
  World::poll();  // messages under way move on between ops
  Span span(SpanLevel::op, op.name(), op.kind, {.pass = pass});
  variable_list given = run();
  span.did(op.work(pass, taken, given));
  if (Trace::global().keeps_events()) span.note_shapes(shapes_of(taken));
  return given;
}

variable_list run_forward(Op& op, at::TensorList inputs) {
  return in_span(op, Pass::forward, inputs, [&] { return op.forward(inputs); });
}

variable_list run_backward(Op& op, const variable_list& grads) {
  return in_span(op, Pass::backward, grads, [&] { return op.backward(grads); });
}

struct OpFunction : torch::autograd::Function<OpFunction> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const at::Tensor& /*anchor*/,
                               std::shared_ptr<Op> op) {
    context->saved_data["op"] = c10::IValue::make_capsule(c10::make_intrusive<OpHolder>(op, inputs.size()));
    context->set_materialize_grads(false);
    variable_list outputs = run_forward(*op, inputs);
    const auto plain = outputs.begin() + std::ptrdiff_t(op->differentiable_outputs(outputs.size()));
    context->mark_non_differentiable({plain, outputs.end()});
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    auto capsule = context->saved_data["op"].toCapsule();
    auto& holder = *static_cast<OpHolder*>(capsule.get());
    std::shared_ptr<Op> op = std::move(holder.op);
    WEFT_ASSERT(op != nullptr, "an op's backward ran twice");
    at::NoGradGuard no_grad;
    const bool any = std::any_of(grads.begin(), grads.end(), [](const at::Tensor& g) { return g.defined(); });
    variable_list result = any ? run_backward(*op, grads) : variable_list(holder.n_inputs);
    result.emplace_back();  // anchor
    result.emplace_back();  // op
    return result;
  }
};

// Without an input that requires grad autograd records no node and the weight gradient would silently be lost
// (embedding, the first op of a block): every op also takes this scalar.
const at::Tensor& anchor() {
  static const at::Tensor tensor = at::zeros({}, at::kFloat).requires_grad_();
  return tensor;
}

class ParamTensor : public Op {
 public:
  explicit ParamTensor(Param& param) : param_(param) {}
  std::vector<at::Tensor> forward(at::TensorList) override { return {param_.weight().detach()}; }
  std::vector<at::Tensor> backward(at::TensorList grads) override {
    if (grads[0].defined() && param_.trainable()) param_.grad().add_(grads[0]);
    return {};
  }
  const char* name() const override { return "as_tensor"; }

 private:
  Param& param_;
};

}  // namespace

Work Op::work(Pass pass, at::TensorList taken, at::TensorList given) const {
  return {0, bytes_of(taken) + bytes_of(given) + (pass == Pass::backward ? bytes_of(kept()) : 0)};
}

double bytes_of(at::TensorList tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.defined() ? double(tensor.nbytes()) : 0;
  return bytes;
}

std::vector<at::Tensor> apply(std::shared_ptr<Op> op, at::TensorList inputs) {
  op->recording = at::GradMode::is_enabled();
  op->kind = current_kind();
  if (!op->recording) return run_forward(*op, inputs);
  return OpFunction::apply(inputs, anchor(), std::move(op));
}

std::vector<std::shared_ptr<const Op>> recorded_ops(const at::Tensor& output) {
  std::map<uint64_t, std::shared_ptr<const Op>> ops;  // by their order
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> todo = {output.grad_fn().get()};
  while (!todo.empty()) {
    torch::autograd::Node* const node = todo.back();
    todo.pop_back();
    if (!node || !seen.insert(node).second) continue;
    if (const auto* ours = dynamic_cast<torch::autograd::CppNode<OpFunction>*>(node)) {
      const auto capsule = ours->ctx_.saved_data.at("op").toCapsule();
      ops[node->sequence_nr()] = static_cast<const OpHolder&>(*capsule).op;
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) todo.push_back(edge.function.get());
  }
  std::vector<std::shared_ptr<const Op>> in_order;
  for (auto& [number, op] : ops) in_order.push_back(std::move(op));
  return in_order;
}

void backward(const at::Tensor& output, const at::Tensor& grad) {
  torch::autograd::backward({output}, {grad});
}

at::Tensor as_tensor(Param& param) {
  param.unit().note_as_tensor();
  return apply(std::make_shared<ParamTensor>(param), {})[0];
}

}  // namespace weft
