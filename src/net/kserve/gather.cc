#include <utility>

#include "classification.h"
#include "gpulet/net/kserve/infer_call.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

using Replies = std::span<const serve::InferReply>;

Status wrong_reply(const Model& model, const std::string& what) {
  return {StatusCode::internal, "model " + in_quotes(model.name) + " answered " + what};
}

Status check_reply(const InferCall& call, const Model& model, const serve::InferReply& reply) {
  if (!reply.status.ok()) return reply.status;
  for (const AskedOutput& asked : call.outputs) {
    if (asked.index >= reply.outputs.size() || asked.index >= reply.payload.size() ||
        asked.index >= model.outputs.size()) {
      return wrong_reply(model, "without its output " + std::to_string(asked.index));
    }
    const Result<std::size_t> bytes = byte_size(reply.outputs[asked.index]);
    if (!bytes.ok() || bytes.value() != reply.payload[asked.index].size()) {
      return wrong_reply(model, "with " + std::to_string(reply.payload[asked.index].size()) +
                                    " bytes for output " +
                                    in_quotes(model.outputs[asked.index].name) + ", which is " +
                                    to_string(reply.outputs[asked.index]));
    }
  }
  return {};
}

Status check_rows(const InferCall& call, const Model& model, Replies replies) {
  if (replies.empty() || replies.size() != call.rows) {
    return wrong_reply(
        model, std::to_string(replies.size()) + " of " + std::to_string(call.rows) + " rows");
  }
  for (const serve::InferReply& reply : replies) {
    if (Status good = check_reply(call, model, reply); !good.ok()) return good;
    for (const AskedOutput& asked : call.outputs) {
      const TensorSpec& spec = reply.outputs[asked.index];
      const TensorSpec& first = replies[0].outputs[asked.index];
      if (spec.type == first.type && spec.shape == first.shape) continue;
      return wrong_reply(
          model, "rows of different shape: " + to_string(first) + " and " + to_string(spec));
    }
  }
  return {};
}

Bytes joined_rows(Replies replies, std::size_t output) {
  if (replies.size() == 1) return replies[0].payload[output];
  std::vector<std::byte> bytes;
  bytes.reserve(replies.size() * replies[0].payload[output].size());
  for (const serve::InferReply& reply : replies) {
    const auto row = reply.payload[output].view();
    bytes.insert(bytes.end(), row.begin(), row.end());
  }
  return Bytes::own(std::move(bytes));
}

std::span<const std::string> labels_of(const Model& model, std::size_t output) {
  if (!model.description || output >= model.description->labels.size()) return {};
  return model.description->labels[output].labels;
}

AnsweredOutput classified(AnsweredOutput output, const Model& model, const AskedOutput& asked,
                          Replies replies) {
  for (const serve::InferReply& reply : replies) {
    append_highest(output.labels, output.spec.type, reply.payload[asked.index].view(),
                   asked.classification, labels_of(model, asked.index));
  }
  const auto rows = static_cast<std::int64_t>(replies.size());
  output.spec.shape = {rows, static_cast<std::int64_t>(output.labels.size()) / rows};
  return output;
}

}  // namespace

Result<std::vector<AnsweredOutput>> gather(const InferCall& call, const Model& model,
                                           std::span<const serve::InferReply> replies) {
  if (Status good = check_rows(call, model, replies); !good.ok()) return good;
  std::vector<AnsweredOutput> outputs;
  outputs.reserve(call.outputs.size());
  for (const AskedOutput& asked : call.outputs) {
    const TensorSpec& row = replies[0].outputs[asked.index];
    AnsweredOutput output;
    output.spec.name = model.outputs[asked.index].name;
    output.spec.type = row.type;
    if (asked.classification > 0) {
      outputs.push_back(classified(std::move(output), model, asked, replies));
      continue;
    }
    output.spec.shape.reserve(row.shape.size() + 1);
    output.spec.shape.push_back(static_cast<std::int64_t>(replies.size()));
    output.spec.shape.insert(output.spec.shape.end(), row.shape.begin(), row.shape.end());
    output.data = joined_rows(replies, asked.index);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::string lengths_and_texts(const std::vector<std::string>& texts) {
  std::string raw;
  for (const std::string& text : texts) {
    auto length = static_cast<std::uint32_t>(text.size());
    for (std::size_t i = 0; i < sizeof length; ++i, length >>= 8U)
      raw += static_cast<char>(length & 0xffU);
    raw += text;
  }
  return raw;
}

}  // namespace gpulet::net::kserve
