#include "task/options.h"

#include "core/error.h"

namespace palimpsest {

namespace {

constexpr std::int64_t most_ids = 2'147'483'647;  // random draws are 32 bits wide

bool too_many(std::int64_t base, std::int64_t exponent) {
    std::int64_t result = 1;
    for (std::int64_t i = 0; i < exponent && result <= most_ids; ++i) result *= base;
    return result > most_ids;
}

void need(std::int64_t have, std::int64_t needed, std::string_view what, std::string_view kind) {
    if (have < needed) {
        fail(ExitCode::usage, "{} different {}s are too few for {}, {} are needed: raise vocabulary, {}s or {}_tokens", have, kind,
             what, needed, kind, kind);
    }
}

}  // namespace

Vocabulary make_vocabulary(const VocabularyOptions& options) {
    Vocabulary v;
    v.size = options.vocabulary;
    v.keys = options.keys > 0     ? options.keys
             : options.values > 0 ? options.vocabulary - 1 - options.values
                                  : options.vocabulary / 2 - 1;
    v.values = options.values > 0 ? options.values : options.vocabulary - 1 - v.keys;
    if (v.keys < 1 || v.values < 1 || 1 + v.keys + v.values > v.size) {
        fail(ExitCode::usage, "vocabulary {} is too small for {} keys and {} values: 1 + keys + values <= vocabulary is needed",
             v.size, options.keys > 0 ? options.keys : 1, options.values > 0 ? options.values : 1);
    }
    v.value_first = v.key_first + v.keys;
    v.key_tokens = options.key_tokens;
    v.value_tokens = options.value_tokens;
    if (too_many(v.keys, v.key_tokens)) {
        fail(ExitCode::usage, "{} keys in {} tokens are more than {} combinations: lower keys or key_tokens", v.keys, v.key_tokens,
             most_ids);
    }
    if (too_many(v.values, v.value_tokens)) {
        fail(ExitCode::usage, "{} values in {} tokens are more than {} combinations: lower values or value_tokens", v.values,
             v.value_tokens, most_ids);
    }
    return v;
}

void need_keys(const Vocabulary& vocabulary, std::int64_t needed, std::string_view what) {
    need(vocabulary.key_count(), needed, what, "key");
}

void need_values(const Vocabulary& vocabulary, std::int64_t needed, std::string_view what) {
    need(vocabulary.value_count(), needed, what, "value");
}

}  // namespace palimpsest
