#include "tests/protocol/message_generators.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "gpulet/core/tensor.h"

namespace gpulet::protocol::testing {
namespace {

// ---- random values

std::uint64_t any_number() { return *rc::gen::arbitrary<std::uint64_t>(); }
std::uint32_t any_index() { return *rc::gen::arbitrary<std::uint32_t>(); }
std::uint32_t any_batch() { return *rc::gen::inRange<std::uint32_t>(1, 1025); }
Share any_share() { return Share{*rc::gen::inRange(1, 101)}; }
double any_amount() { return static_cast<double>(*rc::gen::inRange(0, 1 << 20)) / 64; }
std::optional<double> maybe_amount() {
  return *rc::gen::arbitrary<bool>() ? std::optional(any_amount()) : std::nullopt;
}
Duration any_duration() {
  return std::chrono::microseconds(*rc::gen::inRange<std::int64_t>(0, 1LL << 44));
}

std::string any_sha256() {
  return *rc::gen::container<std::string>(64, rc::gen::elementOf(std::string("0123456789abcdef")));
}

template <typename Make>
auto some(const Make& make) {
  std::vector<decltype(make())> values(*rc::gen::inRange<std::size_t>(0, 4));
  for (auto& value : values) value = make();
  return values;
}

image::Preprocessing any_preprocessing() {
  image::Preprocessing preprocessing;
  preprocessing.width = *rc::gen::inRange(1U, 300U);
  preprocessing.height = *rc::gen::inRange(1U, 300U);
  preprocessing.layout = *rc::gen::element(image::Layout::nchw, image::Layout::nhwc);
  preprocessing.max_megapixels = *rc::gen::inRange(1U, image::kMostMegapixels + 1);
  if (*rc::gen::arbitrary<bool>()) preprocessing.shorter_side = 300;
  if (*rc::gen::arbitrary<bool>()) {
    preprocessing.type = DataType::uint8;
  } else {
    preprocessing.mean[1] = static_cast<float>(*rc::gen::inRange(-100, 100));
    preprocessing.scale[2] = 0.25F;
  }
  return preprocessing;
}

std::vector<FailedRow> any_failed_rows() {
  return some([] { return FailedRow{*rc::gen::inRange(0U, 99U), any_status()}; });
}

TensorSpec any_tensor() {
  TensorSpec spec;
  spec.name = any_name();
  spec.type = static_cast<DataType>(*rc::gen::inRange(1, 12));
  spec.shape = some([] { return *rc::gen::inRange<std::int64_t>(1, 9); });
  if (spec.type == DataType::bytes)
    spec.max_bytes = 4 * element_count(spec) + *rc::gen::inRange<std::size_t>(0, 100);
  return spec;
}

TensorSpec any_encoded_image() {
  TensorSpec spec{any_name(), DataType::bytes, {1}, 100};
  spec.image = any_preprocessing();
  return spec;
}

// Of an input that a process converts.
TensorSpec any_converted() {
  InputConversion conversion;
  conversion.type = *rc::gen::element(DataType::fp32, DataType::fp16);
  conversion.from_channels_last = *rc::gen::arbitrary<bool>();
  conversion.to_channels_last = *rc::gen::arbitrary<bool>();
  conversion.scale = any_amount() + 1;
  conversion.mean = {any_amount() / 1024, any_amount() / 1024, any_amount() / 1024};
  conversion.deviation = {any_amount() + 1024 * 1024};
  TensorSpec spec{any_name(), DataType::uint8, {3, 4, 3}};
  spec.conversion = conversion;
  return spec;
}

// Of a model that a process loads.
std::vector<TensorSpec> any_inputs() {
  return some([] {
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        return any_converted();
      case 1:
        return any_encoded_image();
      default:
        return any_tensor();
    }
  });
}

std::vector<partition::Assignment> any_assignments() {
  return some([] {
    return partition::Assignment{any_name(),   any_amount(), any_batch(),
                                 any_amount(), any_amount(), any_amount()};
  });
}

PlanPart any_part() {
  PlanPart part{any_amount(), any_assignments(),
                static_cast<partition::Service>(*rc::gen::inRange(0, 3))};
  if (*rc::gen::arbitrary<bool>())
    part.policy_choice = {Share{*rc::gen::inRange(1, 101)}, any_amount(), any_assignments()};
  return part;
}

partition::FoundShare any_found() {
  return {*rc::gen::arbitrary<bool>(), any_index(), any_index()};
}

std::optional<partition::MigInstance> any_instance() {
  if (*rc::gen::arbitrary<bool>()) return std::nullopt;
  return partition::MigInstance{*rc::gen::inRange(1U, 9U), *rc::gen::inRange(0U, 8U)};
}

std::optional<partition::MigGeometry> any_geometry() {
  if (*rc::gen::arbitrary<bool>()) return std::nullopt;
  const auto geometry =
      partition::MigGeometry::of(*rc::gen::elementOf(partition::MigGeometry::names())).value();
  return *rc::gen::arbitrary<bool>() ? geometry.without_3g_beside_4g() : geometry;
}

Numerics any_numerics() {
  return {static_cast<Precision>(*rc::gen::inRange(0, 3)), *rc::gen::arbitrary<bool>(),
          any_amount()};
}

partition::DeviceHealth any_health() {
  return static_cast<partition::DeviceHealth>(*rc::gen::inRange(0, 3));
}

std::uint8_t any_small() { return static_cast<std::uint8_t>(*rc::gen::inRange(0, 256)); }

FailureCause any_cause() {
  const int last = static_cast<int>(kLastFailureCause);
  return static_cast<FailureCause>(*rc::gen::inRange(0, last + 1));
}

partition::LoadStages any_stages() {
  return {any_duration(), any_duration(), any_duration(), any_duration()};
}

partition::ProcessCondition any_condition() { return {any_index(), any_index(), any_index()}; }

std::vector<std::uint32_t> any_planned_batches(std::uint32_t max_batch) {
  return *rc::gen::container<std::vector<std::uint32_t>>(
      *rc::gen::inRange<std::size_t>(0, 5), rc::gen::inRange<std::uint32_t>(1, max_batch + 1));
}

GpuletReport any_report() {
  GpuletReport report;
  report.id = {any_number()};
  report.device = any_index();
  report.size = any_share();
  report.models = some([] { return partition::RunningModel{any_name(), any_batch(), any_name()}; });
  report.state = static_cast<GpuletState>(*rc::gen::inRange(1, 6));
  report.status = any_status();
  report.part = any_part();
  report.found = any_found();
  report.instance = any_instance();
  report.cause = any_cause();
  report.failed_model = any_name();
  report.owner = any_name();
  report.load_stages = any_stages();
  report.condition = any_condition();
  return report;
}

DeviceOffer any_device(const std::string& node) {
  DeviceOffer offer;
  offer.device.key = {node, any_index()};
  offer.device.type = any_name();
  offer.device.partitioning = any_name();
  offer.device.sizes = some(any_share);
  offer.device.max_partitions = any_index();
  offer.device.memory_mb = any_amount();
  offer.device.mig = any_geometry();
  offer.device.processes_per_instance = *rc::gen::inRange(1U, 9U);
  offer.device.cores = any_amount();
  offer.mechanism = any_name();
  offer.traits = {1 + any_amount(), static_cast<partition::ChangeOfSize>(*rc::gen::inRange(0, 2)),
                  static_cast<partition::FaultReach>(*rc::gen::inRange(0, 2)),
                  *rc::gen::arbitrary<bool>()};
  offer.fault = any_status();
  return offer;
}

Hello any_hello() {
  Hello hello;
  hello.node = any_name();
  hello.devices = some([&] { return any_device(hello.node); });
  hello.gpulets = some(any_report);
  hello.level = any_index();
  hello.term = {any_number()};
  return hello;
}

InferReply any_infer_reply() {
  InferReply reply;
  reply.tag = any_number();
  reply.status = any_status();
  reply.outputs = any_tensors();
  for (const TensorSpec& output : reply.outputs)
    reply.payload.push_back(any_bytes(byte_size(output).value()));
  reply.queued = any_duration();
  reply.executed = any_duration();
  reply.batch_size = any_batch();
  reply.retry_after = any_duration();
  reply.leaving = *rc::gen::arbitrary<bool>();
  return reply;
}

ModelPiece any_piece() {
  ModelPiece piece{any_sha256(), *rc::gen::inRange<std::uint64_t>(0, 1ULL << 40), 0, any_bytes()};
  piece.total_bytes = piece.offset + piece.data.size() + *rc::gen::inRange<std::uint64_t>(0, 1000);
  piece.changed = *rc::gen::arbitrary<bool>();
  return piece;
}

RunBatch any_run() {
  const auto below = [] { return *rc::gen::inRange<std::uint64_t>(0, 1ULL << 62); };
  return {{any_number()}, any_name(), any_batch(),    below(),        below(),
          below(),        below(),    any_duration(), any_duration(), *rc::gen::arbitrary<bool>()};
}

// ---- the same

bool same_bytes(const Bytes& a, const Bytes& b) { return std::ranges::equal(a.view(), b.view()); }

bool same_bytes(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Bytes& one, const Bytes& other) { return same_bytes(one, other); });
}

template <typename T>
bool all_same(const std::vector<T>& a, const std::vector<T>& b);

bool equal(const InferRequest& a, const InferRequest& b) {
  return a.tag == b.tag && a.model == b.model && a.timeout == b.timeout && a.inputs == b.inputs &&
         same_bytes(a.payload, b.payload) && a.priority == b.priority && a.synthetic == b.synthetic;
}
bool equal(const InferReply& a, const InferReply& b) {
  return a.tag == b.tag && a.status == b.status && a.outputs == b.outputs &&
         same_bytes(a.payload, b.payload) && a.queued == b.queued && a.executed == b.executed &&
         a.batch_size == b.batch_size && a.retry_after == b.retry_after && a.leaving == b.leaving &&
         a.served_by == b.served_by;
}
bool equal(const ModelInfo& a, const ModelInfo& b) {
  return a.name == b.name && a.inputs == b.inputs && a.outputs == b.outputs &&
         a.slo_ms == b.slo_ms && a.max_batch == b.max_batch && a.state == b.state &&
         a.version == b.version && a.next == b.next && a.reason == b.reason &&
         a.next_refused == b.next_refused && a.pending == b.pending && a.lengths == b.lengths &&
         a.pads == b.pads;
}
bool equal(const ModelsChange& a, const ModelsChange& b) {
  return a.kind == b.kind && a.name == b.name && a.file == b.file && same_bytes(a.text, b.text) &&
         a.configuration == b.configuration;
}
bool equal(const ModelsChanged& a, const ModelsChanged& b) {
  return a.status == b.status && all_same(a.models, b.models);
}
bool equal(const ModelsRequest& a, const ModelsRequest& b) { return a.after == b.after; }
bool equal(const ModelsReply& a, const ModelsReply& b) {
  return a.more == b.more && all_same(a.models, b.models) && a.problems == b.problems;
}
bool equal(const StatusReply& a, const StatusReply& b) {
  return a.json == b.json && a.status == b.status;
}
bool equal(const StatusRequest& a, const StatusRequest& b) { return a.local == b.local; }
bool equal(const Authenticate& a, const Authenticate& b) { return a.token == b.token; }
bool equal(const GpuletReport& a, const GpuletReport& b) {
  return a.id == b.id && a.device == b.device && a.size == b.size && a.models == b.models &&
         a.state == b.state && a.status == b.status && a.part == b.part && a.found == b.found &&
         a.instance == b.instance && a.cause == b.cause && a.failed_model == b.failed_model &&
         a.owner == b.owner && a.load_stages == b.load_stages && a.condition == b.condition;
}
bool equal(const DeviceOffer& a, const DeviceOffer& b) {
  return a.device == b.device && a.mechanism == b.mechanism && a.traits == b.traits &&
         a.fault == b.fault;
}
bool equal(const Hello& a, const Hello& b) {
  return a.node == b.node && all_same(a.devices, b.devices) && all_same(a.gpulets, b.gpulets) &&
         a.level == b.level && a.term == b.term;
}
bool equal(const BackendState& a, const BackendState& b) {
  return a.term == b.term && all_same(a.gpulets, b.gpulets);
}
bool equal(const Superseded& a, const Superseded& b) { return a.term == b.term; }
bool equal(const TakeLeadership& a, const TakeLeadership& b) { return a.term == b.term; }
bool equal(const BatchResult& a, const BatchResult& b) {
  return a.id == b.id && a.status == b.status && same_bytes(a.outputs, b.outputs) &&
         a.queued == b.queued && a.executed == b.executed && a.cause == b.cause && a.end == b.end &&
         a.received == b.received && a.elsewhere == b.elsewhere && a.detail == b.detail &&
         a.withdrawn == b.withdrawn && a.missing == b.missing && a.decoded == b.decoded &&
         a.failed == b.failed;
}
bool equal(const ModelPieceRequest& a, const ModelPieceRequest& b) {
  return a.sha256 == b.sha256 && a.offset == b.offset;
}
bool equal(const Heartbeat& a, const Heartbeat& b) { return a.power == b.power; }
bool equal(const Draining&, const Draining&) { return true; }
bool equal(const DeviceReport& a, const DeviceReport& b) {
  return a.device == b.device && a.fault == b.fault;
}
bool equal(const LocalOffer& a, const LocalOffer& b) {
  return a.name == b.name && a.secret == b.secret && a.user == b.user;
}
bool equal(const Welcome& a, const Welcome& b) {
  const bool same_offer = a.local && b.local ? equal(*a.local, *b.local) : !a.local && !b.local;
  return a.heartbeat_every == b.heartbeat_every && a.level == b.level && a.member == b.member &&
         same_offer;
}
bool equal(const ModelToServe& a, const ModelToServe& b) {
  return a.name == b.name && a.sha256 == b.sha256 && a.inputs == b.inputs &&
         a.outputs == b.outputs && a.max_batch == b.max_batch && a.numerics == b.numerics &&
         a.planned_batches == b.planned_batches;
}
bool equal(const CreateGpulet& a, const CreateGpulet& b) {
  return a.id == b.id && a.device == b.device && a.size == b.size && all_same(a.models, b.models) &&
         a.part == b.part && a.memory_mb == b.memory_mb && a.instance == b.instance &&
         a.term == b.term;
}
bool equal(const AssignGpulet& a, const AssignGpulet& b) {
  return a.id == b.id && a.part == b.part && a.term == b.term;
}
bool equal(const SetCores& a, const SetCores& b) {
  return a.id == b.id && a.cores == b.cores && a.term == b.term;
}
bool equal(const Refused& a, const Refused& b) { return a.why == b.why; }
bool equal(const RetireGpulet& a, const RetireGpulet& b) {
  return a.id == b.id && a.term == b.term;
}
bool equal(const Batch& a, const Batch& b) {
  return a.id == b.id && a.gpulet == b.gpulet && a.model == b.model && a.count == b.count &&
         a.start_within == b.start_within && a.expected_duration == b.expected_duration &&
         a.term == b.term && a.synthetic == b.synthetic && same_bytes(a.inputs, b.inputs) &&
         a.entries == b.entries && a.shared == b.shared;
}
bool equal(const Rows& a, const Rows& b) {
  return a.owner == b.owner && a.batch == b.batch && a.present == b.present &&
         same_bytes(a.inputs, b.inputs);
}
bool equal(const ModelPiece& a, const ModelPiece& b) {
  return a.sha256 == b.sha256 && a.offset == b.offset && a.total_bytes == b.total_bytes &&
         same_bytes(a.data, b.data) && a.changed == b.changed;
}
bool equal(const ModelToLoad& a, const ModelToLoad& b) {
  return a.name == b.name && a.file == b.file && a.inputs == b.inputs && a.outputs == b.outputs &&
         a.max_batch == b.max_batch && a.variant == b.variant && a.numerics == b.numerics &&
         a.planned_batches == b.planned_batches;
}
bool equal(const LoadModels& a, const LoadModels& b) {
  return all_same(a.models, b.models) && a.environment == b.environment &&
         a.memory_bytes == b.memory_bytes;
}
bool equal(const RunBatch& a, const RunBatch& b) {
  return a.id == b.id && a.model == b.model && a.count == b.count &&
         a.input_offset == b.input_offset && a.input_bytes == b.input_bytes &&
         a.output_offset == b.output_offset && a.output_capacity == b.output_capacity &&
         a.start_within == b.start_within && a.simulated_latency == b.simulated_latency &&
         a.synthetic == b.synthetic;
}
bool equal(const ProxyReady& a, const ProxyReady& b) {
  return a.status == b.status && a.memory_bytes == b.memory_bytes && a.variants == b.variants &&
         a.found == b.found && a.device == b.device && a.cause == b.cause &&
         a.failed_model == b.failed_model && a.load_stages == b.load_stages &&
         a.condition == b.condition;
}
bool equal(const BatchRan& a, const BatchRan& b) {
  return a.id == b.id && a.status == b.status && a.output_bytes == b.output_bytes &&
         a.queued == b.queued && a.executed == b.executed && a.device == b.device &&
         a.cause == b.cause && a.detail == b.detail && a.condition == b.condition &&
         a.decoded == b.decoded && a.failed == b.failed;
}
bool equal(const PeerHello& a, const PeerHello& b) {
  return a.cluster == b.cluster && a.member == b.member && a.level == b.level &&
         a.secret == b.secret;
}
bool equal(const PeerWelcome& a, const PeerWelcome& b) {
  return a.cluster == b.cluster && a.member == b.member && a.heartbeat_every == b.heartbeat_every &&
         a.level == b.level && a.secret == b.secret;
}
bool equal(const Forward& a, const Forward& b) {
  return equal(a.request, b.request) && a.age == b.age && a.delayed == b.delayed &&
         a.kept_bytes == b.kept_bytes;
}
bool equal(const ForwardReply& a, const ForwardReply& b) {
  return equal(a.reply, b.reply) && a.elsewhere == b.elsewhere &&
         a.payload_needed == b.payload_needed;
}
bool equal(const RowsWanted& a, const RowsWanted& b) {
  return a.batch == b.batch && a.node == b.node && a.tags == b.tags;
}
bool equal(const CancelForward& a, const CancelForward& b) {
  return a.tag == b.tag && a.model == b.model;
}
bool equal(const ServedModels& a, const ServedModels& b) { return a == b; }
bool equal(const ChangeModels& a, const ChangeModels& b) {
  return a.tag == b.tag && equal(a.change, b.change) && a.files == b.files;
}
bool equal(const ChangeResult& a, const ChangeResult& b) {
  return a.tag == b.tag && equal(a.changed, b.changed);
}
bool equal(const CatalogueState& a, const CatalogueState& b) {
  return a.stamp == b.stamp && same_bytes(a.text, b.text);
}
bool equal(const CatalogueAdopted& a, const CatalogueAdopted& b) { return a.stamp == b.stamp; }
bool equal(const SetOwner& a, const SetOwner& b) {
  return a.id == b.id && a.owner == b.owner && a.term == b.term;
}
bool equal(const SetRoutes& a, const SetRoutes& b) {
  return a.term == b.term && a.nodes == b.nodes;
}
bool equal(const StatisticsRequest& a, const StatisticsRequest& b) {
  return a.tag == b.tag && a.model == b.model;
}
bool equal(const StatisticsReply& a, const StatisticsReply& b) {
  return a.tag == b.tag && a.models == b.models;
}
bool equal(const OwnerReport& a, const OwnerReport& b) {
  return a.draining == b.draining && a.nodes == b.nodes && a.models == b.models &&
         a.gpulets == b.gpulets && a.batches == b.batches && a.lost == b.lost;
}
template <typename Empty>
requires std::is_empty_v<Empty>
bool equal(const Empty&, const Empty&) { return true; }

template <typename T>
bool all_same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& one, const T& other) { return equal(one, other); });
}

template <typename Variant>
bool same_variant(const Variant& a, const Variant& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& one) { return equal(one, std::get<std::decay_t<decltype(one)>>(b)); }, a);
}

}  // namespace

std::string any_name() {
  const auto length = *rc::gen::inRange<std::size_t>(0, 24);
  return *rc::gen::container<std::string>(length, rc::gen::inRange<char>(' ', 127));
}

std::vector<TensorSpec> any_tensors() { return some(any_tensor); }

Status any_status() {
  const auto code = static_cast<StatusCode>(*rc::gen::inRange(0, 11));
  return code == StatusCode::ok ? Status() : Status(code, any_name());
}

namespace {

ModelsChange any_models_change() {
  return {*rc::gen::element(ModelsChange::Kind::load, ModelsChange::Kind::unload), any_name(),
          any_name(), any_bytes(), any_name()};
}

}  // namespace

ClientMessage any_client_message() {
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      return ModelsRequest{any_name()};
    case 3:
      return Authenticate{any_name()};
    case 2:
      return any_models_change();
    case 1:
      return StatusRequest{*rc::gen::arbitrary<bool>()};
    default:
      return InferRequest{any_number(),
                          any_name(),
                          any_duration(),
                          any_tensors(),
                          any_bytes(),
                          any_index(),
                          *rc::gen::arbitrary<bool>()};
  }
}

std::vector<ModelInfo> any_models() {
  return some([] {
    std::vector<TensorSpec> inputs = any_tensors();
    const bool dynamic = !inputs.empty() && *rc::gen::arbitrary<bool>();
    if (dynamic) inputs.front().shape.push_back(-1);
    if (*rc::gen::arbitrary<bool>()) inputs.push_back(any_encoded_image());
    return ModelInfo{any_name(),
                     std::move(inputs),
                     any_tensors(),
                     any_amount(),
                     any_batch(),
                     static_cast<ModelState>(*rc::gen::inRange(1, 6)),
                     any_name(),
                     any_name(),
                     any_name(),
                     *rc::gen::arbitrary<bool>(),
                     *rc::gen::arbitrary<bool>(),
                     dynamic ? std::vector<std::uint32_t>{32, 64} : std::vector<std::uint32_t>(),
                     dynamic};
  });
}

namespace {

CatalogueStamp any_stamp() { return {{any_number()}, any_number()}; }

std::vector<Duration> any_durations(int least) {
  std::vector<Duration> durations;
  for (int i = *rc::gen::inRange(least, 4); i > 0; --i) durations.push_back(any_duration());
  return durations;
}

SetRoutes any_routes() {
  return {{any_number()}, some([] {
            return NodeRoutes{
                any_name(), some([] {
                  return Route{
                      {any_number()}, any_duration(), some([] {
                        return RouteSlot{any_name(), any_name(), any_durations(1), any_amount()};
                      })};
                })};
          })};
}

OwnerReport any_owner_report() {
  return {*rc::gen::arbitrary<bool>(),
          some([] { return any_name(); }),
          some([] {
            return ModelFigures{any_name(),   any_number(), any_number(), any_number(),
                                any_number(), any_number(), any_number(), any_durations(0)};
          }),
          some([] {
            return GpuletFigures{{any_number()}, any_number(), any_number(),
                                 any_duration(), any_number(), any_number()};
          }),
          some([] {
            return BatchFigures{{any_number()}, any_name(), any_batch(), any_duration()};
          }),
          some([] {
            return ProcessLost{{any_number()},
                               some([] { return any_name(); }),
                               any_number(),
                               any_cause(),
                               {any_small(), any_small()}};
          })};
}

}  // namespace

DurationCount any_count() { return {any_number(), any_number()}; }

InferenceStatistics any_statistics() {
  return {any_name(),
          any_name(),
          any_number(),
          any_number(),
          any_number(),
          any_count(),
          any_count(),
          any_count(),
          any_count(),
          any_count(),
          any_count(),
          some([] {
            return BatchCount{any_batch(), any_count(), any_count(), any_count()}; })};
}

PeerRequest any_peer_request() {
  switch (*rc::gen::inRange(0, 11)) {
    case 10:
      return StatisticsRequest{any_number(), any_name()};
    case 9:
      return ModelPieceRequest{any_sha256(), any_number()};
    case 7:
      return any_routes();
    case 8:
      return any_owner_report();
    case 5:
      return ChangeModels{any_number(), any_models_change(), some([] {
                            return NamedFile{any_name(), any_sha256()};
                          })};
    case 6:
      return CatalogueAdopted{any_stamp()};
    case 4:
      return StatusRequest{*rc::gen::arbitrary<bool>()};
    case 0:
      return PeerHello{any_name(), any_name(), any_index(), any_name()};
    case 1:
      return CancelForward{any_number(), any_name()};
    case 2:
      return Heartbeat{};
    default:
      return Forward{
          {any_number(), any_name(), any_duration(), any_tensors(), any_bytes(), any_index()},
          any_duration(),
          *rc::gen::arbitrary<bool>(),
          any_number()};
  }
}

PeerReply any_peer_reply() {
  switch (*rc::gen::inRange(0, 11)) {
    case 10:
      return RowsWanted{{any_number()}, any_name(), some(any_number)};
    case 9:
      return StatisticsReply{any_number(), some(any_statistics)};
    case 8:
      return any_piece();
    case 6:
      return ChangeResult{any_number(), {any_status(), any_models()}};
    case 7:
      return CatalogueState{any_stamp(), any_bytes()};
    case 5:
      return StatusReply{any_name(), any_status()};
    case 0:
      return PeerWelcome{any_name(), any_name(), any_duration(), any_index()};
    case 1:
      return ServedModels{*rc::gen::arbitrary<bool>(), some([] {
                            return ServedModelState{
                                any_name(),
                                static_cast<ModelState>(*rc::gen::inRange(1, 6)),
                                any_name(),
                                any_index(),
                                any_name(),
                                any_name(),
                                *rc::gen::arbitrary<bool>(),
                                *rc::gen::arbitrary<bool>(),
                                any_name(),
                                some([] {
                                  return OwnerShare{any_name(), any_amount()};
                                })};
                          })};
    case 2:
      return Heartbeat{};
    case 3:
      return Refused{any_status()};
    default:
      return ForwardReply{any_infer_reply(), *rc::gen::arbitrary<bool>(),
                          *rc::gen::arbitrary<bool>()};
  }
}

FrontendReply any_frontend_reply() {
  switch (*rc::gen::inRange(0, 4)) {
    case 0:
      return ModelsReply{any_models(), *rc::gen::arbitrary<bool>(),
                         some([] { return any_name(); })};
    case 2:
      return ModelsChanged{any_status(), any_models()};
    case 1:
      return StatusReply{any_name(), any_status()};
    default:
      return any_infer_reply();
  }
}

BackendMessage any_backend_message() {
  switch (*rc::gen::inRange(0, 9)) {
    case 0:
      return any_hello();
    case 7:
      return BackendState{{any_number()}, some(any_report)};
    case 8:
      return Superseded{{any_number()}};
    case 1:
      return any_report();
    case 2:
      return BatchResult{{any_number()},
                         any_status(),
                         any_bytes(),
                         any_duration(),
                         any_duration(),
                         any_cause(),
                         {any_small(), any_small()},
                         any_duration(),
                         {},
                         *rc::gen::arbitrary<bool>(),
                         any_name(),
                         some(any_index),
                         some(any_index),
                         any_duration(),
                         any_failed_rows()};
    case 3:
      return ModelPieceRequest{any_sha256(), any_number()};
    case 5:
      return Draining{};
    case 6:
      return DeviceReport{any_index(), any_status()};
    default: {
      Heartbeat beat;
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i)
        beat.power.push_back({any_index(), maybe_amount(), maybe_amount(), maybe_amount()});
      return beat;
    }
  }
}

BackendCommand any_backend_command() {
  switch (*rc::gen::inRange(0, 12)) {
    case 11:
      return Rows{any_name(), {any_number()}, some(any_index), {any_bytes()}};
    case 0: {
      Welcome welcome{any_duration(), any_index(), any_name()};
      if (*rc::gen::arbitrary<bool>()) welcome.local = {any_name(), any_name(), any_index()};
      return welcome;
    }
    case 10:
      return SetOwner{{any_number()}, any_name(), {any_number()}};
    case 9:
      return TakeLeadership{{any_number()}};
    case 1:
      return CreateGpulet{{any_number()},
                          any_index(),
                          any_share(),
                          some([] {
                            ModelToServe model{any_name(),    any_sha256(), any_inputs(),
                                               any_tensors(), any_batch(),  any_numerics()};
                            model.planned_batches = any_planned_batches(model.max_batch);
                            return model;
                          }),
                          any_part(),
                          any_amount(),
                          any_instance(),
                          {any_number()}};
    case 6:
      return AssignGpulet{{any_number()}, any_part(), {any_number()}};
    case 7:
      return SetCores{{any_number()}, any_amount(), {any_number()}};
    case 8:
      return Refused{any_status()};
    case 2:
      return RetireGpulet{{any_number()}, {any_number()}};
    case 3: {
      Batch batch{{any_number()},
                  {any_number()},
                  any_name(),
                  any_batch(),
                  any_duration(),
                  any_duration(),
                  {},
                  {any_number()},
                  *rc::gen::arbitrary<bool>(),
                  some([] {
                    return EntryRows{any_name(), any_batch()};
                  })};
      if (*rc::gen::arbitrary<bool>()) {
        batch.inputs = {any_bytes()};
      } else {
        batch.inputs = {Bytes()};
        batch.shared = some([] { return SharedSlice{any_number(), any_number()}; });
      }
      return batch;
    }
    case 4:
      return any_piece();
    default:
      return Heartbeat{};
  }
}

ProxyCommand any_proxy_command() {
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return LoadModels{some([] {
                          ModelToLoad model{any_name(),  any_name(),  any_inputs(),  any_tensors(),
                                            any_batch(), any_index(), any_numerics()};
                          model.planned_batches = any_planned_batches(model.max_batch);
                          return model;
                        }),
                        {{"OMP_NUM_THREADS", any_name()}, {"GPULET", ""}},
                        any_number()};
    case 1:
      return any_run();
    default:
      return StopProxy{};
  }
}

ProxyMessage any_proxy_message() {
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return ProxyIdle{};
    case 1:
      return ProxyReady{any_status(), any_number(), some([] { return any_index(); }),
                        any_found(),  any_health(), any_cause(),
                        any_name(),   any_stages(), any_condition()};
    default:
      break;
  }
  BatchRan ran{{any_number()}, any_status(), any_number(), any_duration(),
               any_duration(), any_health(), any_cause(),  any_name()};
  if (*rc::gen::arbitrary<bool>()) ran.condition = any_condition();
  ran.decoded = any_duration();
  ran.failed = any_failed_rows();
  return ran;
}

bool same(const ClientMessage& a, const ClientMessage& b) { return same_variant(a, b); }
bool same(const FrontendReply& a, const FrontendReply& b) { return same_variant(a, b); }
bool same(const BackendMessage& a, const BackendMessage& b) { return same_variant(a, b); }
bool same(const BackendCommand& a, const BackendCommand& b) { return same_variant(a, b); }
bool same(const PeerRequest& a, const PeerRequest& b) { return same_variant(a, b); }
bool same(const PeerReply& a, const PeerReply& b) { return same_variant(a, b); }
bool same(const ProxyCommand& a, const ProxyCommand& b) { return same_variant(a, b); }
bool same(const ProxyMessage& a, const ProxyMessage& b) { return same_variant(a, b); }

}  // namespace gpulet::protocol::testing
