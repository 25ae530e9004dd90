// Filler that cannot be mistaken for a fact: the tokens between the events.
#pragma once

#include "task/draw.h"
#include "task/events.h"

#include <cstdint>

namespace palimpsest {

enum class FillerKind : std::int8_t {
    zero,       // token 0
    random,     // any token, but never a live key, and never a value right after a read (read and value would look like a write)
    colliding,  // any token at all, live keys included: a memory that follows the tokens cannot reach 1.0
};

// A `Filler` gives filler tokens. An example's live keys are keys(0) … keys(live - 1) of a random order; later ones are harmless.
class Filler {
public:
    PALIMPSEST_HD Filler(FillerKind kind, const Vocabulary& vocabulary, const RandomOrder& keys, std::int64_t live)
        : kind_(kind),
          vocabulary_(vocabulary),
          keys_(keys),
          live_(live),
          // Single tokens of longer keys might add up to a live key, so no key token is used there.
          dead_(vocabulary.key_tokens == 1 ? vocabulary.keys - live : 0) {}

    PALIMPSEST_HD std::int64_t token(Rng& rng, bool after_read = false) const {
        if (kind_ == FillerKind::zero) return 0;
        if (kind_ == FillerKind::colliding) return uniform(rng, vocabulary_.size);
        const bool values_allowed =
            !after_read || vocabulary_.value_tokens > 1;  // the blanks of a longer read separate it from a value
        const std::int64_t choice = uniform(rng, 1 + dead_ + (values_allowed ? vocabulary_.values : 0));
        if (choice == 0) return 0;
        if (choice <= dead_) return vocabulary_.key_first + keys_(live_ + choice - 1);
        return vocabulary_.value_first + choice - 1 - dead_;
    }

    template <class Sink>
    PALIMPSEST_HD void lay(Sink& sink, Rng& rng, std::int64_t count, bool after_read = false) const {
        if (kind_ == FillerKind::zero) {
            sink.gap(count);
            return;
        }
        for (std::int64_t i = 0; i < count; ++i) sink.noise(token(rng, after_read && i == 0));
    }

private:
    FillerKind kind_;
    const Vocabulary& vocabulary_;
    RandomOrder keys_;
    std::int64_t live_, dead_;
};

}  // namespace palimpsest
