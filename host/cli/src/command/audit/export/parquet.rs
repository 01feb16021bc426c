//! Calls as rows of a Parquet file.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::RowAccessor as _;
use parquet::schema::parser::parse_message_type;
use portcullis::ledger::CallEntry;

/// The number of calls of a row group: few enough to wait in memory, enough that columns are compressed well.
const GROUP_ROWS: usize = 50_000;

/// A column: its name and its content. Columns have the names of `audit --json`.
type Column = (&'static str, Content);

/// The content of a column, by its type.
enum Content {
    /// A text that every call has.
    Text(fn(&CallEntry) -> &str),
    /// A text that some calls have.
    SomeText(fn(&CallEntry) -> Option<&str>),
    /// A time that every call has, in milliseconds since the Unix epoch.
    Time(fn(&CallEntry) -> u64),
    /// A number that some calls have.
    SomeNumber(fn(&CallEntry) -> Option<u64>),
}

const COLUMNS: [Column; 14] = [
    ("call", Content::Text(|entry| &entry.call)),
    ("run", Content::SomeText(|entry| entry.run.as_deref())),
    ("started", Content::Time(|entry| entry.started)),
    ("principal", Content::SomeText(|entry| entry.principal.as_deref())),
    ("profile", Content::SomeText(|entry| entry.profile.as_deref())),
    ("client", Content::SomeText(|entry| entry.client.as_deref())),
    ("method", Content::SomeText(|entry| entry.method.as_deref())),
    ("kind", Content::SomeText(|entry| entry.kind)),
    ("item", Content::SomeText(|entry| entry.item.as_deref())),
    ("source", Content::SomeText(|entry| entry.source.as_deref())),
    ("outcome", Content::Text(|entry| entry.outcome.as_str())),
    ("reason", Content::SomeText(|entry| entry.reason.as_deref())),
    ("answeredBy", Content::SomeText(|entry| entry.answered_by.as_deref())),
    ("micros", Content::SomeNumber(|entry| entry.micros)),
];

impl Content {
    /// Returns the type of a column, before and after its name, in the language of Parquet's schemas.
    fn schema(&self) -> (&'static str, &'static str) {
        match self {
            Self::Text(_) => ("required binary", " (STRING)"),
            Self::SomeText(_) => ("optional binary", " (STRING)"),
            Self::Time(_) => ("required int64", " (TIMESTAMP(MILLIS,true))"),
            Self::SomeNumber(_) => ("optional int64", ""),
        }
    }
}

/// A Parquet file that is being written. It can be read once it is finished: its index is at its end.
pub(super) struct ParquetFile {
    writer: SerializedFileWriter<File>,
    /// The calls of the next row group.
    waiting: Vec<CallEntry>,
}

impl ParquetFile {
    pub(super) fn new(file: File) -> Result<Self> {
        let columns = COLUMNS.iter().map(|(name, content)| {
            let (before, after) = content.schema();
            format!("{before} {name}{after};\n")
        });
        let schema = format!("message calls {{\n{}}}", columns.collect::<String>());
        let properties = WriterProperties::builder().set_compression(Compression::LZ4_RAW).build();
        let writer = SerializedFileWriter::new(file, Arc::new(parse_message_type(&schema)?), Arc::new(properties))?;
        Ok(Self { writer, waiting: Vec::new() })
    }

    /// Takes over the calls of an earlier file in their encoded form, and returns the identifier of the last one.
    ///
    /// # Errors
    /// [`ParquetError::General`] if the file has other columns; otherwise the [`ParquetError`] that occurred.
    pub(super) fn take_over(&mut self, earlier: &File) -> Result<Option<String>> {
        let reader = SerializedFileReader::new(earlier.try_clone()?)?;
        let metadata = reader.metadata();
        if metadata.file_metadata().schema() != self.writer.schema_descr().root_schema() {
            return Err(ParquetError::General("it has other columns than this version writes".to_owned()));
        }
        for group in metadata.row_groups() {
            let mut copy = self.writer.next_row_group()?;
            for column in group.columns() {
                let written = ColumnCloseResult {
                    bytes_written: column.compressed_size().cast_unsigned(),
                    rows_written: group.num_rows().cast_unsigned(),
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                copy.append_column(earlier, written)?;
            }
            copy.close()?;
        }
        let Some(last) = metadata.num_row_groups().checked_sub(1) else { return Ok(None) };
        let last = reader.get_row_group(last)?.get_row_iter(None)?.last().transpose()?;
        last.map(|row| row.get_string(0).cloned()).transpose()
    }

    /// Adds a call.
    pub(super) fn add(&mut self, entry: CallEntry) -> Result<()> {
        self.waiting.push(entry);
        if self.waiting.len() < GROUP_ROWS { Ok(()) } else { self.write_group() }
    }

    /// Writes the remaining calls and the index of the file.
    pub(super) fn finish(mut self) -> Result<File> {
        if !self.waiting.is_empty() {
            self.write_group()?;
        }
        self.writer.into_inner()
    }

    fn write_group(&mut self) -> Result<()> {
        let calls = std::mem::take(&mut self.waiting);
        let mut group = self.writer.next_row_group()?;
        let mut columns = COLUMNS.iter();
        while let (Some((_, content)), Some(mut column)) = (columns.next(), group.next_column()?) {
            match content {
                Content::Text(of) => {
                    let texts: Vec<ByteArray> = calls.iter().map(|call| of(call).into()).collect();
                    column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
                }
                Content::SomeText(of) => {
                    let texts: Vec<ByteArray> = calls.iter().filter_map(of).map(ByteArray::from).collect();
                    let levels: Vec<i16> = calls.iter().map(|call| of(call).is_some().into()).collect();
                    column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)?;
                }
                Content::Time(of) => {
                    let times: Vec<i64> = calls.iter().map(|call| of(call).cast_signed()).collect();
                    column.typed::<Int64Type>().write_batch(&times, None, None)?;
                }
                Content::SomeNumber(of) => {
                    let numbers: Vec<i64> = calls.iter().filter_map(of).map(u64::cast_signed).collect();
                    let levels: Vec<i16> = calls.iter().map(|call| of(call).is_some().into()).collect();
                    column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None)?;
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use parquet::record::{Field, Row};

    use super::*;

    /// Returns the row of a call as read.
    fn expected(entry: &CallEntry) -> Vec<(String, Field)> {
        let text = |text: Option<&str>| text.map_or(Field::Null, |text| Field::Str(text.to_owned()));
        let field = |content: &Content| match content {
            Content::Text(of) => text(Some(of(entry))),
            Content::SomeText(of) => text(of(entry)),
            Content::Time(of) => Field::TimestampMillis(of(entry).cast_signed()),
            Content::SomeNumber(of) => of(entry).map_or(Field::Null, |number| Field::Long(number.cast_signed())),
        };
        COLUMNS.iter().map(|(name, content)| ((*name).to_owned(), field(content))).collect()
    }

    #[test]
    fn what_is_read_back_is_what_was_written_in_columns_named_as_in_json() {
        let whole = super::super::tests::entry();
        let hostile = CallEntry { item: Some("\0,\"é\n".to_owned()), reason: None, micros: None, ..whole.clone() };
        let bare = CallEntry { run: None, principal: None, client: None, kind: None, source: None, ..hostile.clone() };
        let calls: Vec<CallEntry> = [whole, hostile, bare].into_iter().cycle().take(GROUP_ROWS + 2).collect();
        let mut file = ParquetFile::new(tempfile::tempfile().unwrap()).unwrap();
        calls.iter().cloned().for_each(|call| file.add(call).unwrap());
        let reader = SerializedFileReader::new(file.finish().unwrap()).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let rows: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), calls.len());
        for (row, call) in rows.into_iter().zip(&calls) {
            assert_eq!(row.into_columns(), expected(call));
        }
        let json = serde_json::to_value(&calls[0]).unwrap();
        let names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(COLUMNS.iter().all(|(name, _)| names.contains(name)), "{names:?}");
        // A file that is continued has the calls of both.
        let mut more = ParquetFile::new(tempfile::tempfile().unwrap()).unwrap();
        let mut first = ParquetFile::new(tempfile::tempfile().unwrap()).unwrap();
        first.add(calls[1].clone()).unwrap();
        let first = first.finish().unwrap();
        assert_eq!(more.take_over(&first).unwrap(), Some(calls[1].call.clone()));
        more.add(calls[2].clone()).unwrap();
        let both = SerializedFileReader::new(more.finish().unwrap()).unwrap();
        let rows: Vec<_> = both.get_row_iter(None).unwrap().map(|row| row.unwrap().into_columns()).collect();
        assert_eq!(rows, [expected(&calls[1]), expected(&calls[2])]);
        let empty = ParquetFile::new(tempfile::tempfile().unwrap()).unwrap().finish().unwrap();
        assert_eq!(SerializedFileReader::new(empty).unwrap().get_row_iter(None).unwrap().count(), 0);
    }
}
