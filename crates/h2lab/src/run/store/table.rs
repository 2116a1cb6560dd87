//! Records as Parquet tables: one place that knows the Parquet crate.
//!
//! A record type says once, in the order of its columns, how a row is put and taken ([`TableRow`]). Integers are INT64, times
//! are INT64 nanoseconds that are NULL for what did not happen, enumerations are text, so that
//! `duckdb -c "select outcome, count(*) from 'samples.parquet' group by 1"` needs no manual.

use std::borrow::Borrow;
use std::fs::File;
use std::io::Write;
#[cfg(feature = "nats")]
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use h2lab_base::units::Time;
use parquet::basic::{Compression, ConvertedType, Encoding, Repetition, Type as Physical};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::durable::{self, Batch};
use super::seal::{self, Sealed};

/// How a column is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// A whole number, never NULL.
    Int,
    /// Nanoseconds since the start of the run, NULL for what did not happen.
    Time,
    /// UTF-8 text, never NULL.
    Text,
    /// True or false.
    Bool,
}

/// A record type that is stored as rows of a table.
pub trait TableRow: Sized {
    /// The columns, in order. Before them a file has `visit`, the number of the repetition, which the table itself writes.
    const COLUMNS: &'static [(&'static str, ColumnType)];
    /// Writes the columns in order.
    fn put(&self, row: &mut RowWriter<'_>);
    /// Reads the columns in order.
    fn take(row: &mut RowReader<'_>) -> Result<Self>;
}

/// The values of one column.
#[derive(Debug)]
enum Values {
    Int(Vec<i64>),
    /// Values and definition levels: 0 is NULL and has no value.
    Time(Vec<i64>, Vec<i16>),
    Text(Vec<ByteArray>),
    Bool(Vec<bool>),
}

impl Values {
    /// No values, and room for those of so many rows.
    fn new(kind: ColumnType, rows: usize) -> Self {
        match kind {
            ColumnType::Int => Self::Int(Vec::with_capacity(rows)),
            ColumnType::Time => Self::Time(Vec::with_capacity(rows), Vec::with_capacity(rows)),
            ColumnType::Text => Self::Text(Vec::with_capacity(rows)),
            ColumnType::Bool => Self::Bool(Vec::with_capacity(rows)),
        }
    }
}

/// Takes the columns of one row, in order.
#[derive(Debug)]
pub struct RowWriter<'a> {
    columns: &'a mut [Values],
    next: usize,
}

impl RowWriter<'_> {
    fn column(&mut self) -> &mut Values {
        self.next += 1;
        &mut self.columns[self.next - 1]
    }

    /// A whole number. Values above 2^63 (sentinels such as "no connection" never are) would wrap.
    pub fn int(&mut self, value: impl Into<u64>) {
        let value = value.into();
        match self.column() {
            Values::Int(values) => values.push(value.cast_signed()),
            other => unreachable!("`put` disagrees with COLUMNS: int into {other:?}"),
        }
    }

    /// A time, or NULL.
    pub fn time(&mut self, value: Time) {
        match self.column() {
            Values::Time(values, levels) => {
                levels.push(i16::from(value.happened()));
                if value.happened() {
                    values.push(value.as_nanos().cast_signed());
                }
            }
            other => unreachable!("`put` disagrees with COLUMNS: time into {other:?}"),
        }
    }

    /// Text.
    pub fn text(&mut self, value: &str) {
        match self.column() {
            // Most texts are names, the same row after row, which then share their bytes.
            Values::Text(values) => match values.last() {
                Some(last) if last.data() == value.as_bytes() => values.push(last.clone()),
                _ => values.push(ByteArray::from(value)),
            },
            other => unreachable!("`put` disagrees with COLUMNS: text into {other:?}"),
        }
    }

    /// True or false.
    pub fn bool(&mut self, value: bool) {
        match self.column() {
            Values::Bool(values) => values.push(value),
            other => unreachable!("`put` disagrees with COLUMNS: bool into {other:?}"),
        }
    }
}

/// Gives the columns of one row, in order.
#[derive(Debug)]
pub struct RowReader<'a> {
    columns: &'a [Values],
    /// Per column, how many values of it have been read: differs from the row where there are NULLs.
    cursors: &'a mut [usize],
    row: usize,
    next: usize,
}

impl RowReader<'_> {
    /// A whole number.
    pub fn int<T: TryFrom<u64>>(&mut self) -> Result<T> {
        let (column, row) = (self.next, self.row);
        self.next += 1;
        let Some(Values::Int(values)) = self.columns.get(column) else {
            bail!("column {column} is not a whole number")
        };
        let value = *values.get(row).context("a column is shorter than its table")?;
        T::try_from(value.cast_unsigned())
            .ok()
            .with_context(|| format!("{value} in column {column} is out of range"))
    }

    /// A time, or [`Time::NEVER`].
    pub fn time(&mut self) -> Result<Time> {
        let (column, row) = (self.next, self.row);
        self.next += 1;
        let Some(Values::Time(values, levels)) = self.columns.get(column) else {
            bail!("column {column} is not a time")
        };
        if *levels.get(row).context("a column is shorter than its table")? == 0 {
            return Ok(Time::NEVER);
        }
        let value = *values.get(self.cursors[column]).context("a column is shorter than its table")?;
        self.cursors[column] += 1;
        Ok(Time::from_nanos(value.cast_unsigned()))
    }

    /// Text.
    pub fn text(&mut self) -> Result<&str> {
        let (column, row) = (self.next, self.row);
        self.next += 1;
        let Some(Values::Text(values)) = self.columns.get(column) else {
            bail!("column {column} is not text")
        };
        values.get(row).context("a column is shorter than its table")?.as_utf8().context("text is not UTF-8")
    }

    /// True or false.
    pub fn bool(&mut self) -> Result<bool> {
        let (column, row) = (self.next, self.row);
        self.next += 1;
        let Some(Values::Bool(values)) = self.columns.get(column) else {
            bail!("column {column} is not a boolean")
        };
        values.get(row).copied().context("a column is shorter than its table")
    }
}

/// The Parquet schema of `R`, with `visit` first.
fn schema<R: TableRow>() -> Result<TypePtr> {
    let columns = std::iter::once(("visit", ColumnType::Int)).chain(R::COLUMNS.iter().copied());
    let fields: Result<Vec<TypePtr>> = columns
        .map(|(name, kind)| {
            let (physical, converted, repetition) = match kind {
                ColumnType::Int => (Physical::INT64, ConvertedType::NONE, Repetition::REQUIRED),
                ColumnType::Time => (Physical::INT64, ConvertedType::NONE, Repetition::OPTIONAL),
                ColumnType::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8, Repetition::REQUIRED),
                ColumnType::Bool => (Physical::BOOLEAN, ConvertedType::NONE, Repetition::REQUIRED),
            };
            let field = Type::primitive_type_builder(name, physical)
                .with_converted_type(converted)
                .with_repetition(repetition)
                .build()?;
            Ok(Arc::new(field))
        })
        .collect();
    Ok(Arc::new(Type::group_type_builder("h2lab").with_fields(fields?).build()?))
}

/// How the columns of `R` are packed.
///
/// Numbers and times as differences in as few bits as they need (`DELTA_BINARY_PACKED`): times hardly ever repeat, and
/// looking each of a million up in a dictionary first took more CPU than everything else about the file. Text is names
/// out of a few, for which a dictionary is right. Statistics are kept per row group, not per page: a row group is a repetition, or
/// a part of one.
fn properties<R: TableRow>() -> Arc<WriterProperties> {
    let numbers = R::COLUMNS.iter().filter(|(_, kind)| matches!(kind, ColumnType::Int | ColumnType::Time));
    let numbers = std::iter::once("visit").chain(numbers.map(|(name, _)| *name));
    let plain = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(vec![seal::placeholder()]))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    let packed = numbers.fold(plain, |properties, name| {
        let column = ColumnPath::from(name);
        properties
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
    });
    Arc::new(packed.build())
}

/// Writes the rows of one repetition as a table of their own.
pub fn write<R: TableRow>(
    batch: &mut Batch,
    path: &Path,
    measured: u64,
    rows: impl IntoIterator<Item: Borrow<R>, IntoIter: ExactSizeIterator>,
) -> Result<()> {
    batch.write(path, |file| write_groups::<R>(file, [(measured, rows)]).map_err(plain))
}

/// Writes the rows of several repetitions, each with its number, as one table: row groups of their own for each.
pub fn write_all<R: TableRow>(
    path: &Path,
    repetitions: impl IntoIterator<Item = (u64, impl IntoIterator<Item: Borrow<R>, IntoIter: ExactSizeIterator>)>,
) -> Result<()> {
    durable::put(path, |file| write_groups::<R>(file, repetitions).map_err(plain))
}

/// The error of the file itself: parquet's repeats its text.
fn plain(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<ParquetError>() {
        Ok(ParquetError::External(cause)) => match cause.downcast::<std::io::Error>() {
            Ok(error) => (*error).into(),
            Err(other) => anyhow::anyhow!(other),
        },
        Ok(own) => own.into(),
        Err(other) => other,
    }
}

/// Rows of a row group at most: all columns of a group are in memory before they are written.
const GROUP: usize = 128 * 1024;

fn write_groups<R: TableRow>(
    file: &File,
    repetitions: impl IntoIterator<Item = (u64, impl IntoIterator<Item: Borrow<R>, IntoIter: ExactSizeIterator>)>,
) -> Result<()> {
    let mut sealed = Sealed::new(file);
    let mut writer = SerializedFileWriter::new(&mut sealed, schema::<R>()?, properties::<R>())?;
    for (measured, rows) in repetitions {
        let mut rows = rows.into_iter();
        loop {
            let mut group = writer.next_row_group()?;
            for values in &columns::<R>(measured, rows.by_ref().take(GROUP)) {
                write_column(&mut group, values)?;
            }
            group.close()?;
            if rows.len() == 0 {
                break;
            }
        }
    }
    writer.close()?;
    sealed.finish()
}

/// The columns of a table with these rows, `visit` first.
fn columns<R: TableRow>(measured: u64, rows: impl ExactSizeIterator<Item: Borrow<R>>) -> Vec<Values> {
    let count = rows.len();
    let mut columns: Vec<Values> = R::COLUMNS.iter().map(|(_, kind)| Values::new(*kind, count)).collect();
    for row in rows {
        let mut writer = RowWriter { columns: &mut columns, next: 0 };
        row.borrow().put(&mut writer);
        debug_assert_eq!(writer.next, R::COLUMNS.len(), "`put` writes every column");
    }
    columns.insert(0, Values::Int(vec![measured.cast_signed(); count]));
    columns
}

fn write_column<W: Write + Send>(group: &mut SerializedRowGroupWriter<'_, W>, values: &Values) -> Result<()> {
    let mut column = group.next_column()?.context("the schema has fewer columns than the table")?;
    match values {
        Values::Int(values) => column.typed::<Int64Type>().write_batch(values, None, None)?,
        Values::Time(values, levels) => {
            column.typed::<Int64Type>().write_batch(values, Some(levels), None)?
        }
        Values::Text(values) => column.typed::<ByteArrayType>().write_batch(values, None, None)?,
        Values::Bool(values) => column.typed::<BoolType>().write_batch(values, None, None)?,
    };
    column.close()?;
    Ok(())
}

/// Joins the tables of several repetitions into one, with their row groups as they are, without decoding them. The parts may be
/// gone then. It lasts when its folder is synced.
pub fn join<R: TableRow>(parts: &[std::path::PathBuf], path: &Path) -> Result<()> {
    if let [only] = parts {
        return std::fs::rename(only, path)
            .with_context(|| format!("cannot put {} in place", path.display()));
    }
    durable::put(path, |file| join_into::<R>(parts, file).map_err(plain))
}

fn join_into<R: TableRow>(parts: &[std::path::PathBuf], file: &File) -> Result<()> {
    let mut sealed = Sealed::new(file);
    let mut writer = SerializedFileWriter::new(&mut sealed, schema::<R>()?, properties::<R>())?;
    for part in parts {
        let source = File::open(part).with_context(|| format!("cannot open {}", part.display()))?;
        seal::check(&source).with_context(|| format!("{} is damaged", part.display()))?;
        let reader = SerializedFileReader::new(source.try_clone()?)?;
        for group in reader.metadata().row_groups() {
            let mut target = writer.next_row_group()?;
            for column in group.columns() {
                let close = parquet::column::writer::ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                target.append_column(&source, close)?;
            }
            target.close()?;
        }
    }
    writer.close()?;
    sealed.finish()
}

/// The largest footer that is read of a table from elsewhere, in bytes: a row group takes two thousand.
#[cfg(feature = "nats")]
const MOST_FOOTER: u32 = 64 << 20;

/// How many rows a table from elsewhere has, of which nothing is decoded. Its footer is not read if it is larger than any of ours.
#[cfg(feature = "nats")]
pub fn count_rows(path: &Path) -> Result<u64> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let not_parquet = || format!("{} is not a Parquet file", path.display());
    // The last bytes are the length of the footer and `PAR1`.
    let mut end = [0; 8];
    let at = file.metadata()?.len().checked_sub(end.len() as u64).with_context(not_parquet)?;
    file.read_exact_at(&mut end, at).with_context(not_parquet)?;
    let [a, b, c, d, ..] = end;
    let footer = u32::from_le_bytes([a, b, c, d]);
    ensure!(footer <= MOST_FOOTER, "{} has a footer of {footer} bytes", path.display());
    let reader = SerializedFileReader::new(file).with_context(not_parquet)?;
    reader.metadata().row_groups().iter().try_fold(0_u64, |rows, group| {
        let more = u64::try_from(group.num_rows()).with_context(not_parquet)?;
        Ok(rows.saturating_add(more))
    })
}

/// How many bytes of text a table from elsewhere has once it is decoded, or more than `most`, with which it ends. Few bytes of a file
/// may be many: a text that is stored once stands in as many rows as refer to it. None is kept.
#[cfg(feature = "nats")]
pub fn count_text(path: &Path, most: u64) -> Result<u64> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let reader = SerializedFileReader::new(file)
        .with_context(|| format!("{} is not a Parquet file", path.display()))?;
    let mut bytes = 0_u64;
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index)?;
        for column in 0..group.num_columns() {
            count_column(&*group, column, most, &mut bytes)
                .with_context(|| format!("in column {column} of row group {index} of {}", path.display()))?;
            if bytes > most {
                return Ok(bytes);
            }
        }
    }
    Ok(bytes)
}

/// Adds the bytes of a column to `bytes` if it has text, until these are more than `most`.
#[cfg(feature = "nats")]
fn count_column(group: &dyn RowGroupReader, column: usize, most: u64, bytes: &mut u64) -> Result<()> {
    let ColumnReader::ByteArrayColumnReader(mut reader) = group.get_column_reader(column)? else {
        return Ok(());
    };
    // With these encodings, which are ours, the texts of a page share its bytes. Others make a copy of each: thousands that are as long
    // as a page.
    for page in group.get_column_page_reader(column)? {
        let encoding = page?.encoding();
        let is_ours =
            matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
        ensure!(is_ours, "its text is encoded as {encoding:?}, which no h2lab does");
    }
    let mut left = usize::try_from(group.metadata().num_rows())?;
    let mut values = Vec::new();
    while left > 0 && *bytes <= most {
        values.clear();
        let (read, ..) = reader.read_records(left.min(DECODED), None, None, &mut values)?;
        ensure!(read > 0, "it ends {left} rows early");
        left = left.saturating_sub(read);
        let lengths = values.iter().map(|value: &ByteArray| value.len() as u64);
        *bytes = lengths.fold(*bytes, u64::saturating_add);
    }
    Ok(())
}

/// Reads a table: `take` gets each row with its repetition, in order.
pub fn read<R: TableRow>(path: &Path, take: &mut dyn FnMut(u64, R) -> Result<()>) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    seal::check(&file).with_context(|| format!("{} is damaged", path.display()))?;
    let reader = SerializedFileReader::new(file)
        .with_context(|| format!("{} is not a Parquet file", path.display()))?;
    for index in 0..reader.num_row_groups() {
        read_group(&*reader.get_row_group(index)?, take)
            .with_context(|| format!("in row group {index} of {}", path.display()))?;
    }
    Ok(())
}

/// Rows of a group, which may be millions, that are decoded at a time.
const DECODED: usize = 8 * 1024;

fn read_group<R: TableRow>(
    group: &dyn RowGroupReader,
    take: &mut dyn FnMut(u64, R) -> Result<()>,
) -> Result<()> {
    ensure!(
        group.num_columns() == R::COLUMNS.len() + 1,
        "the table has other columns than this version of h2lab"
    );
    let kinds = std::iter::once(ColumnType::Int).chain(R::COLUMNS.iter().map(|(_, kind)| *kind));
    let mut readers = kinds
        .zip(0..)
        .map(|(kind, n)| Ok((kind, group.get_column_reader(n)?)))
        .collect::<Result<Vec<_>>>()?;
    let mut left = usize::try_from(group.metadata().num_rows())?;
    while left > 0 {
        let count = left.min(DECODED);
        let decoded = readers.iter_mut().zip(0..).map(|((kind, reader), n)| {
            read_values(reader, *kind, count).with_context(|| format!("in column {n}"))
        });
        let columns = decoded.collect::<Result<Vec<Values>>>()?;
        let mut cursors = vec![0; columns.len()];
        for row in 0..count {
            let mut reader = RowReader { columns: &columns, cursors: &mut cursors, row, next: 0 };
            let measured = reader.int()?;
            take(measured, R::take(&mut reader)?)?;
        }
        left -= count;
    }
    Ok(())
}

/// The next `count` values of a column.
fn read_values(reader: &mut ColumnReader, kind: ColumnType, count: usize) -> Result<Values> {
    let (values, (read, ..)) = match (kind, reader) {
        (ColumnType::Int, ColumnReader::Int64ColumnReader(reader)) => {
            let mut values = Vec::with_capacity(count);
            let read = reader.read_records(count, None, None, &mut values)?;
            (Values::Int(values), read)
        }
        (ColumnType::Time, ColumnReader::Int64ColumnReader(reader)) => {
            let (mut values, mut levels) = (Vec::with_capacity(count), Vec::with_capacity(count));
            let read = reader.read_records(count, Some(&mut levels), None, &mut values)?;
            (Values::Time(values, levels), read)
        }
        (ColumnType::Text, ColumnReader::ByteArrayColumnReader(reader)) => {
            let mut values = Vec::with_capacity(count);
            let read = reader.read_records(count, None, None, &mut values)?;
            (Values::Text(values), read)
        }
        (ColumnType::Bool, ColumnReader::BoolColumnReader(reader)) => {
            let mut values = Vec::with_capacity(count);
            let read = reader.read_records(count, None, None, &mut values)?;
            (Values::Bool(values), read)
        }
        (kind, _) => bail!("it is not stored as {kind:?}"),
    };
    ensure!(read == count, "it ends {} rows early", count - read);
    Ok(values)
}

#[cfg(all(test, feature = "nats"))]
mod tests {
    use super::*;

    /// A table with one column of this text in so many rows, encoded without a dictionary.
    fn write_text(path: &Path, encoding: Encoding, text: &str, rows: usize) {
        let field = Type::primitive_type_builder("detail", Physical::BYTE_ARRAY)
            .with_converted_type(ConvertedType::UTF8)
            .with_repetition(Repetition::REQUIRED)
            .build()
            .unwrap();
        let schema = Type::group_type_builder("h2lab").with_fields(vec![Arc::new(field)]).build().unwrap();
        let properties =
            WriterProperties::builder().set_dictionary_enabled(false).set_encoding(encoding).build();
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        write_column(&mut group, &Values::Text(vec![ByteArray::from(text); rows])).unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn text_is_counted_as_it_is_decoded_and_an_encoding_that_copies_each_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("waits.parquet");
        let rows = 2 * DECODED + 1;
        write_text(&path, Encoding::PLAIN, "abc", rows);
        let all = 3 * rows as u64;
        assert_eq!(count_text(&path, u64::MAX).unwrap(), all);
        assert_eq!(count_text(&path, all).unwrap(), all);
        assert_eq!(count_text(&path, 5).unwrap(), 3 * DECODED as u64, "no more is decoded than is needed");
        write_text(&path, Encoding::DELTA_BYTE_ARRAY, "abc", rows);
        let refused = format!("{:#}", count_text(&path, u64::MAX).unwrap_err());
        assert!(refused.contains("DELTA_BYTE_ARRAY, which no h2lab does"), "{refused}");
    }
}
