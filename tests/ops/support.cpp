#include "support.h"

#include "source_dir.h"

#include <ATen/Parallel.h>
#include <hdf5.h>

namespace palimpsest::test {

namespace {

// Tensors here are tiny: a second thread only costs time. The test of thread counts sets its own.
const bool one_thread = (at::set_num_threads(1), true);

at::Tensor read_dataset(hid_t group, const char* name) {
    const hid_t dataset = H5Dopen2(group, name, H5P_DEFAULT), space = H5Dget_space(dataset);
    std::vector<hsize_t> sizes(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
    H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
    at::Tensor x = at::empty(std::vector<std::int64_t>(sizes.begin(), sizes.end()), at::kDouble);
    const herr_t status = H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x.mutable_data_ptr<double>());
    H5Sclose(space);
    H5Dclose(dataset);
    REQUIRE(status >= 0);
    return x;
}

}  // namespace

Tensors golden(const std::string& group_name) {
    const std::string path = source_dir() + "/tests/golden/recurrences.h5";
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    REQUIRE(file >= 0);
    const hid_t group = H5Gopen2(file, group_name.c_str(), H5P_DEFAULT);
    REQUIRE(group >= 0);
    H5G_info_t info;
    H5Gget_info(group, &info);
    Tensors out;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
        char name[64];
        H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name, H5P_DEFAULT);
        out[name] = read_dataset(group, name);
    }
    H5Gclose(group);
    H5Fclose(file);
    return out;
}

ops::RecurrenceInput make_input(const Tensors& inputs, const Case& c) {
    const auto get = [&](const char* name) {
        const auto found = inputs.find(name);
        return found == inputs.end() ? at::Tensor() : found->second;
    };
    ops::RecurrenceInput in;
    in.q = get("q");
    in.k = get("k");
    in.u = get("u");
    in.e = get("e");
    in.log_decay = get("log_decay");
    in.initial_state = get("initial_state");
    in.scale = c.scale;
    in.micro_steps = c.micro_steps;
    in.chunk = c.chunk;
    return in;
}

Tensors outputs_of(const ops::RecurrenceOutput& out) {
    return {{"o", out.o}, {"final_state", out.final_state}, {"residual", out.residual}};
}

Case random_case(std::uint64_t seed, const Shape& s, Gate gate, bool erase, bool initial) {
    Random random(seed);
    Case c;
    const std::int64_t rows = s.T * s.M;
    const at::Tensor k = random.normal({s.N, rows, s.H, s.K});
    c.inputs["q"] = random.normal({s.N, s.T, s.H, s.K});
    c.inputs["k"] = k / k.square().sum(-1, true).sqrt();
    c.inputs["u"] = random.normal({s.N, rows, s.H, s.V});
    // An erase vector of its own, not beta k: k, e and u are independent inputs.
    if (erase) c.inputs["e"] = c.inputs["k"] * random.uniform({s.N, rows, s.H, 1}) + 0.1 * random.normal({s.N, rows, s.H, s.K});
    if (gate == Gate::scalar) c.inputs["log_decay"] = -random.uniform({s.N, rows, s.H}).neg().log1p().neg() * 0.3;
    if (gate == Gate::channel) c.inputs["log_decay"] = -random.uniform({s.N, rows, s.H, s.K}).neg().log1p().neg() * 0.3;
    if (initial) c.inputs["initial_state"] = random.normal({s.N, s.H, s.K, s.V});
    c.cotangents["o"] = random.normal({s.N, s.T, s.H, s.V});
    c.cotangents["final_state"] = random.normal({s.N, s.H, s.K, s.V});
    c.cotangents["residual"] = random.normal({s.N, rows, s.H, s.V});
    c.scale = 1 / std::sqrt(static_cast<double>(s.K));
    c.micro_steps = s.M;
    c.what = "T " + std::to_string(s.T) + ", H " + std::to_string(s.H) + ", K " + std::to_string(s.K) + ", V " +
             std::to_string(s.V) + ", M " + std::to_string(s.M) +
             (gate == Gate::none     ? ", no decay"
              : gate == Gate::scalar ? ", scalar decay"
                                     : ", channel decay") +
             (erase ? ", erase" : "") + (initial ? ", initial state" : "") + ", seed " + std::to_string(seed);
    return c;
}

Result run_case(const Case& c, ops::Backend backend, at::ScalarType type) {
    Tensors inputs;
    for (const auto& [name, x] : c.inputs) inputs[name] = leaf(x, type);
    Result result;
    result.outputs = outputs_of(ops::recurrence(make_input(inputs, c), backend, true));
    result.gradients = gradients(inputs, result.outputs, c.cotangents);
    return result;
}

const char* name_of(ops::Backend backend) { return backend == ops::Backend::reference ? "reference" : "chunk"; }

Result plain_loop(const Case& c) {
    Tensors x;
    for (const auto& [name, value] : c.inputs) x[name] = leaf(value);
    const std::int64_t N = x["q"].size(0), T = x["q"].size(1), H = x["q"].size(2), K = x["q"].size(3), V = x["u"].size(3);
    at::Tensor S = x.count("initial_state") ? x["initial_state"] : at::zeros({N, H, K, V}, at::kDouble);
    std::vector<at::Tensor> o, residual;
    for (std::int64_t row = 0; row < T * c.micro_steps; ++row) {
        if (x.count("log_decay")) {
            const at::Tensor g = x["log_decay"].select(1, row);
            S = S * (g.dim() == 3 ? g.unsqueeze(-1) : g.unsqueeze(-1).unsqueeze(-1)).exp();
        }
        at::Tensor r = x["u"].select(1, row);
        if (x.count("e")) r = r - (S * x["e"].select(1, row).unsqueeze(-1)).sum(2);
        S = S + x["k"].select(1, row).unsqueeze(-1) * r.unsqueeze(2);
        residual.push_back(r);
        if (row % c.micro_steps == c.micro_steps - 1) {
            o.push_back(c.scale * (S * x["q"].select(1, row / c.micro_steps).unsqueeze(-1)).sum(2));
        }
    }
    Result result;
    result.outputs = {{"o", at::stack(o, 1)}, {"final_state", S}, {"residual", at::stack(residual, 1)}};
    result.gradients = gradients(x, result.outputs, c.cotangents);
    return result;
}

void compare(const Result& found, const Result& expected, const Limit& limit, double factor) {
    for (const auto& [name, x] : expected.outputs) {
        INFO(name);
        CHECK(distance(found.outputs.at(name), x) < factor * limit.outputs);
    }
    for (const auto& [name, x] : expected.gradients) {
        INFO("gradient of " << name);
        CHECK(distance(found.gradients.at(name), x) < factor * (name == "log_decay" ? limit.decay_gradient : limit.gradients));
    }
}

double depth(const at::Tensor& log_decay) { return std::max(1.0, log_decay.abs().max().item<double>() * 64 / 100); }

}  // namespace palimpsest::test
