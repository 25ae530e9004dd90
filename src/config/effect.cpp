#include "config/effect.h"

#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace palimpsest {

void Effects::judge(const AnySchema& schema, const std::string& path, const void* object) { judge(schema, path, object, {}, ""); }

void Effects::judge(const AnySchema& schema, const std::string& path, const void* object, const std::vector<User>& users,
                    const char* kind) {
    std::vector<std::string> sections = {path};
    for (const User& user : users) sections.push_back(user.path);
    for (const Option& option : schema.options()) {
        bool counts = users.empty() && schema.counts(option, object), inherited = users.empty();
        std::vector<std::string> own;
        for (const User& user : users) {
            const bool has_own = user.own && user.own->find(option.name);
            if (has_own) own.push_back(user.path + "." + option.name);
            if (has_own && !schema.counts(option, user.object)) judge_key(schema, option, user.path, {user.path, path});
            inherited = inherited || !has_own;
            counts = counts || (!has_own && schema.counts(option, user.object));
        }
        if (counts) continue;
        if (inherited) {
            judge_key(schema, option, path, sections);
        } else if (!is_default(schema, option, path + "." + option.name)) {
            // Where a list is set for this call, every user in it is new, and the list stands above the section.
            std::vector<std::string> lists;
            for (const User& user : users) lists.push_back(user.path.substr(0, user.path.rfind('.')));
            if (own.size() > 2) own.resize(2);
            no_effect(path + "." + option.name, lists,
                      fmt::format("every {} has its own '{}'; set {}, …", kind, option.name, join(own, ", ")));
        }
    }
}

void Effects::judge_key(const AnySchema& schema, const Option& option, const std::string& section,
                        const std::vector<std::string>& sections) {
    const std::string path = section + "." + option.name;
    if (!find_path(root_, path) || option.used_when.empty()) return;
    std::vector<std::string> deciders;
    for (const std::string& name : schema.decided_by(option)) {
        for (const std::string& place : sections) deciders.push_back(place + "." + name);
        // A decider that could not be read decides nothing and has an error of its own.
        const Value* value = find_path(root_, deciders.back());
        Diagnostics own;
        if (value) schema.find(name)->read(schema.make_default().get(), *value, name, own);
        if (!own.empty()) return;
    }
    if (deciders.empty()) return;  // the option's own value says that it is not used
    run_.unused.insert(path);
    if (!is_default(schema, option, path))
        no_effect(path, deciders, fmt::format("it counts only where {}; leave it out", schema.where_used(option, section)));
}

void Effects::not_used(const std::string& path) {
    const Value* section = find_path(root_, path);
    if (!section) return;
    run_.unused.insert(path);
    for (const Value::Entry& entry : section->entries) run_.unused.insert(path + "." + entry.key);
}

void Effects::no_effect(const std::string& path, const std::vector<std::string>& decided_by, const std::string& why) {
    const Value* value = find_path(root_, path);
    if (!value) return;
    run_.unused.insert(path);
    const Level mine = level(value);
    const bool overruled = std::any_of(decided_by.begin(), decided_by.end(), [&](const std::string& decider) {
        return varies_apart(decider, path) || level(find_path(root_, decider)) > mine;
    });
    if (mine > Level::base && !overruled) errors_.error(value->source, fmt::format("'{}' has no effect: {}", path, why));
}

Effects::Level Effects::level(const Value* value) const {
    if (!value || !value->source.text) return Level::defaulted;
    if (value->source.text->name == "<command line>") return Level::argument;
    return value->source.text == root_.source.text ? Level::file : Level::base;
}

// Returns whether the sweep varies `decider` by a key that does not set `path` too.
bool Effects::varies_apart(const std::string& decider, const std::string& path) const {
    return std::any_of(settings_.begin(), settings_.end(), [&](const Setting& setting) {
        return setting.swept && (is_below(decider, setting.path) || is_below(setting.path, decider)) &&
               !is_below(path, setting.path);
    });
}

// Returns whether the key stands at its default, which changes nothing. A default set for this call fails: it has a purpose.
bool Effects::is_default(const AnySchema& schema, const Option& option, const std::string& path) const {
    const Value* value = find_path(root_, path);
    if (!value) return true;
    const std::shared_ptr<void> object = schema.make_default();
    Diagnostics own;
    option.read(object.get(), *value, path, own);
    return level(value) != Level::argument && schema.is_default(option, object.get());
}

void Effects::caution(const AnySchema& schema, const std::string& path, const void* object) {
    for (const Option& option : schema.options())
        for (const auto& [value, text] : option.cautions) {
            if (!schema.counts(option, object) || emit_flow(option.write(object)) != value) continue;
            const std::string words = fmt::format("'{}.{}' {}: {}", path, option.name, value, text);
            if (std::find(run_.cautions.begin(), run_.cautions.end(), words) == run_.cautions.end()) run_.cautions.push_back(words);
        }
}

}  // namespace palimpsest
