#include "config/diagnostics.h"
#include "core/error.h"
#include "mixers/mixer.h"

#include <fmt/ranges.h>

namespace palimpsest {
namespace {

// The registry is a static of a function, because mixers register before main, in any order.
std::map<std::string, std::unique_ptr<MixerKind>, std::less<>>& registry() {
    static std::map<std::string, std::unique_ptr<MixerKind>, std::less<>> kinds;
    return kinds;
}

}  // namespace

std::int64_t State::bytes() const {
    std::int64_t total = 0;
    for (const auto& [name, tensor] : tensors_) {
        if (!tensor.defined()) continue;
        PALIMPSEST_ASSERT(tensor.dim() >= 2, "state tensor {} has {} axes; it needs leading axes [R, B]", name, tensor.dim());
        const std::int64_t sequences = tensor.size(0) * tensor.size(1);
        total += tensor.numel() / sequences * static_cast<std::int64_t>(tensor.element_size());
    }
    return total;
}

std::vector<std::string> mixer_names() {
    std::vector<std::string> names;
    for (const auto& [name, kind] : registry()) names.push_back(name);
    return names;
}

const MixerKind* find_mixer(std::string_view name) {
    const auto found = registry().find(name);
    return found == registry().end() ? nullptr : found->second.get();
}

const MixerKind& get_mixer(std::string_view name) {
    if (const MixerKind* kind = find_mixer(name)) return *kind;
    const std::vector<std::string> names = mixer_names();
    fail(ExitCode::usage, "unknown mixer '{}'{}; known mixers: {}", name, did_you_mean(name, names), fmt::join(names, ", "));
}

void register_mixer(std::unique_ptr<MixerKind> kind) {
    std::string name = kind->facts().name;
    PALIMPSEST_ASSERT(registry().count(name) == 0, "mixer {} is registered twice", name);
    registry().emplace(std::move(name), std::move(kind));
}

}  // namespace palimpsest
