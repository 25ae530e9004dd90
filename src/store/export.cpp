#include "store/export.h"

#include "core/error.h"
#include "core/text.h"
#include "store/answers.h"
#include "store/compare.h"  // segment_label
#include "store/run_reader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <type_traits>

namespace palimpsest {
namespace {

// A value as either format has it.
struct Cell {
    std::string csv, json = "null";
};

std::string json_text(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Cell cell(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return {text, json_text(text)};
    std::string quoted = "\"";
    for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return {quoted + "\"", json_text(text)};
}

template <class Number>
requires std::is_arithmetic_v<Number> Cell cell(Number value) {
    const std::string text = fmt::format("{}", value);
    if (std::isfinite(static_cast<double>(value))) return {text, text};
    return {std::isnan(static_cast<double>(value)) ? "" : text};
}

class Writer {
public:
    Writer(const std::vector<std::string>& columns, ExportFormat format, const std::function<void(std::string_view)>& write)
        : csv_(format == ExportFormat::csv), write_(write) {
        for (const std::string& name : columns) columns_.push_back(cell(name));
        if (csv_) row(columns_);
    }

    void row(const std::vector<Cell>& cells) {
        PALIMPSEST_ASSERT(cells.size() == columns_.size(), "cells {}, columns {}", cells.size(), columns_.size());
        if (!csv_) buffer_ += rows_++ == 0 ? "[\n{" : ",\n{";
        for (std::size_t i = 0; i < cells.size(); ++i)
            buffer_ += (i == 0 ? "" : csv_ ? "," : ", ") + (csv_ ? cells[i].csv : columns_[i].json + ": " + cells[i].json);
        buffer_ += csv_ ? "\n" : "}";
        if (buffer_.size() > 1 << 16) flush();
    }

    void end() {
        if (!csv_) buffer_ += rows_ == 0 ? "[]\n" : "\n]\n";
        flush();
    }

private:
    void flush() {
        write_(buffer_);
        buffer_.clear();
    }

    std::vector<Cell> columns_;
    bool csv_;
    const std::function<void(std::string_view)>& write_;
    std::string buffer_;
    std::size_t rows_ = 0;
};

using Cells = std::vector<Cell>;

bool add_summary(Writer& writer, const CollectedRun& run, Cells row, const std::vector<std::string>& columns) {
    row.push_back(cell(std::string(to_string(run.state))));
    for (auto name = columns.begin() + 1; name != columns.end(); ++name) row.push_back(cell(summary_value(run.record, *name)));
    writer.row(row);
    return !run.record.summary.empty();
}

bool add_train(Writer& writer, const RunRecord& record, const Cells& run_cells, const std::vector<std::string>& columns) {
    for (std::size_t i = 0; i < record.step.size(); ++i) {
        Cells row = run_cells;
        row.push_back(cell(record.step[i]));
        for (auto name = columns.begin() + 1; name != columns.end(); ++name) {
            const auto found = record.train.find(*name);
            row.push_back(found == record.train.end() ? Cell{} : cell(found->second[i]));
        }
        writer.row(row);
    }
    return !record.step.empty();
}

bool add_evals(Writer& writer, const RunRecord& record, const Cells& run_cells, const std::vector<std::string>& classes,
               bool by_slice) {
    for (std::size_t e = 0; e < record.eval_step.size(); ++e) {
        // A row each for the slices of a segment, or for each slice.
        const auto row_of = [&](const Slice& slice) {
            return std::optional(by_slice ? std::pair(std::int64_t{&slice - record.slices.data()}, std::int64_t{0})
                                          : std::pair(slice.split, slice.segment));
        };
        for (const auto& [key, counts] : tally(record.slices, answers_at(record, e), row_of)) {
            const Slice& slice = record.slices[counts.slices.front()];
            const std::int64_t all = counts.all();
            double loss_sum = 0;
            for (const std::size_t s : counts.slices) loss_sum += record.loss_sum[e * record.slices.size() + s];
            const auto count_of = [&, &answers = counts.by_class](const std::string& name) -> std::optional<std::int64_t> {
                const auto found = std::find(record.answer_classes.begin(), record.answer_classes.end(), name);
                if (found == record.answer_classes.end()) return std::nullopt;
                return answers[static_cast<std::size_t>(found - record.answer_classes.begin())];
            };
            const auto share = [&](double sum) { return all > 0 ? cell(sum / static_cast<double>(all)) : Cell{}; };
            Cells row = run_cells;
            row.push_back(cell(record.eval_step[e]));
            row.push_back(cell(std::string(slice.split == 0 ? "valid" : "test")));
            row.push_back(cell(slice.segment));
            row.push_back(cell(segment_label(slice)));
            if (by_slice)
                for (const std::int64_t value : {slice.overwrites, slice.distance_from, slice.distance_to})
                    row.push_back(cell(value));
            row.push_back(cell(all));
            row.push_back(share(static_cast<double>(count_of("correct").value_or(0))));
            row.push_back(share(loss_sum));
            for (const std::string& name : classes) {
                const auto count = count_of(name);
                row.push_back(count ? cell(*count) : Cell{});
            }
            writer.row(row);
        }
    }
    return !record.eval_step.empty();
}

// Columns of the table itself. All runs have the metrics and the classes of this version; a file of another may have others.
std::vector<std::string> own_columns(const std::vector<CollectedRun>& runs, ExportTable table,
                                     const std::function<RunRecord(const CollectedRun&)>& read) {
    const auto with = [](std::vector<std::string> columns, const auto& names) {
        columns.insert(columns.end(), names.begin(), names.end());
        return columns;
    };
    if (table == ExportTable::summary) return with({"state"}, summary_names(runs));
    std::set<std::string> metrics;
    std::vector<std::string> classes;
    for (const CollectedRun& run : runs) {
        const RunRecord record = read(run);
        for (const auto& [name, column] : record.train) metrics.insert(name);
        for (const std::string& name : record.answer_classes)
            if (!contains(classes, name)) classes.push_back(name);
    }
    if (table == ExportTable::train) return with({"step"}, metrics);
    std::vector<std::string> columns = {"step", "split", "segment", "label"};
    if (table == ExportTable::slices)
        columns = with(columns, std::vector<std::string>{"overwrites", "distance_from", "distance_to"});
    return with(with(columns, std::vector<std::string>{"answers", "accuracy", "loss"}), classes);
}

}  // namespace

RunParts parts_of(ExportTable table) {
    RunParts parts = results_only;
    parts.log = table == ExportTable::train;
    parts.slices = parts.answers = table == ExportTable::evals || table == ExportTable::slices;
    return parts;
}

std::vector<const CollectedRun*> export_runs(const std::vector<CollectedRun>& runs, const std::vector<std::string>& keys,
                                             ExportTable table, ExportFormat format,
                                             const std::function<RunRecord(const CollectedRun&)>& read,
                                             const std::function<void(std::string_view)>& write) {
    const std::vector<std::string> own = own_columns(runs, table, read);
    const auto loss = std::find(own.begin(), own.end(), "loss");
    const std::vector<std::string> classes(loss == own.end() ? loss : loss + 1, own.end());  // of evaluations, the last columns
    std::vector<std::string> columns = {"run_id"};
    columns.insert(columns.end(), keys.begin(), keys.end());
    columns.insert(columns.end(), own.begin(), own.end());

    Writer writer(columns, format, write);
    std::vector<const CollectedRun*> missing;
    for (const CollectedRun& run : runs) {
        Cells cells = {cell(run.run.run_id)};
        for (const std::string& key : keys) {
            const std::optional<Attribute> value = value_under(run, key);
            cells.push_back(value ? std::visit([](const auto& v) { return cell(v); }, *value) : Cell{});
        }
        const bool told = table == ExportTable::summary ? add_summary(writer, run, std::move(cells), own)
                          : table == ExportTable::train
                              ? add_train(writer, read(run), cells, own)
                              : add_evals(writer, read(run), cells, classes, table == ExportTable::slices);
        if (!told) missing.push_back(&run);
    }
    writer.end();
    return missing;
}

}  // namespace palimpsest
