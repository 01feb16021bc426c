//! The contract of every storage of chains. Another storage is added to `all`.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::removed::RemovedRecords;
use crate::storage::{ChainReader, SkippedBatch, StorageLock, StorageProbe, StoredBatch};

/// A storage in memory: the tested properties hold not only for files.
#[derive(Debug, Clone, Default)]
struct MemoryStorage(Arc<Mutex<BTreeMap<String, Vec<Vec<ChainedRecord>>>>>);

struct MemoryWriter(MemoryStorage, String);

struct MemoryReader(MemoryStorage, String, usize);

impl Storage for MemoryStorage {
    fn create(&self, chain: &str) -> Box<dyn ChainWriter> {
        Box::new(MemoryWriter(self.clone(), chain.to_owned()))
    }

    fn chains(&self) -> Result<BTreeSet<String>, LedgerError> {
        Ok(self.0.lock().keys().cloned().collect())
    }

    fn last_place(&self, _: &str) -> Result<ChainPosition, LedgerError> {
        Ok(ChainPosition::default())
    }

    fn read(&self, chain: &str, from: ChainPosition) -> Result<Box<dyn ChainReader>, LedgerError> {
        Ok(Box::new(MemoryReader(self.clone(), chain.to_owned(), usize::try_from(from.offset).unwrap())))
    }

    fn removed(&self, _: &str) -> Result<Option<RemovedRecords>, LedgerError> {
        Ok(None)
    }

    fn removed_chains(&self) -> Result<BTreeSet<String>, LedgerError> {
        Ok(BTreeSet::new())
    }

    fn remove(&self, _: &RemovedRecords) -> Result<(), LedgerError> {
        Err(LedgerError::file("remove", Path::new("memory"), "it keeps everything"))
    }

    fn complete_removals(&self) -> Result<(), LedgerError> {
        Ok(())
    }

    fn lock_for_removal(&self) -> Result<Option<StorageLock>, LedgerError> {
        Ok(None)
    }

    fn lock_for_reading(&self) -> Result<Option<StorageLock>, LedgerError> {
        Ok(None)
    }

    fn finish(&self, _: &str, _: ChainPosition, _: &ChainEnd) -> Result<(), LedgerError> {
        Ok(())
    }
}

impl ChainWriter for MemoryWriter {
    fn append(&mut self, records: &[ChainedRecord]) -> Result<(), LedgerError> {
        if !records.is_empty() {
            self.0.0.lock().entry(self.1.clone()).or_default().push(records.to_vec());
        }
        Ok(())
    }

    fn probe(&self) -> StorageProbe {
        Arc::new(|| Ok(()))
    }

    fn finish(&mut self) -> Result<(), LedgerError> {
        Ok(())
    }

    fn abandon(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}

impl ChainReader for MemoryReader {
    fn next(&mut self) -> Result<Option<StoredBatch>, LedgerError> {
        let place = self.place();
        let records = self.0.0.lock().get(&self.1).and_then(|batches| batches.get(self.2).cloned());
        self.2 += usize::from(records.is_some());
        Ok(records.map(|records| StoredBatch { place, records }))
    }

    fn skip(&mut self) -> Result<Option<SkippedBatch>, LedgerError> {
        let skipped = |StoredBatch { place, records }: StoredBatch| {
            let tip = records.last().map(|record| chain::ChainTip { seq: record.seq, hash: record.hash })?;
            Some(SkippedBatch { place, tip, hashes: records.iter().map(|record| record.hash).collect() })
        };
        Ok(self.next()?.and_then(skipped))
    }

    fn end(&mut self) -> Result<ChainEnd, LedgerError> {
        Ok(ChainEnd::Clean)
    }

    fn place(&self) -> ChainPosition {
        ChainPosition { segment: 1, offset: self.2 as u64 }
    }
}

/// Returns all storages, the segments in this folder.
fn all(dir: &Path) -> Vec<Arc<dyn Storage>> {
    std::fs::create_dir_all(dir.join("records")).unwrap();
    vec![Arc::new(segments(dir)), Arc::new(MemoryStorage::default())]
}

fn some_records(chain: &str, n: usize) -> Vec<ChainedRecord> {
    let drafts: Vec<_> = (0..n).map(|_| event(EventKind::CallIntent).draft(None).unwrap()).collect();
    chained(chain, &drafts)
}

#[test]
fn what_was_appended_is_read_in_order_by_batches_and_from_every_place() {
    let dir = folder();
    for storage in all(dir.path()) {
        assert_eq!(stored(&*storage, "A"), (Vec::new(), ChainEnd::Clean), "a chain that does not exist");
        let records = some_records("A", 2000);
        let mut writer = storage.create("A");
        assert_eq!(storage.chains().unwrap(), BTreeSet::new(), "nothing before the first append");
        writer.append(&[]).unwrap();
        let (first, rest) = records.split_at(3);
        writer.append(first).unwrap();
        let mut reader = storage.read("A", ChainPosition::default()).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().records, first);
        assert!(reader.next().unwrap().is_none());
        let place = reader.place();
        writer.append(rest).unwrap();
        assert!(reader.next().unwrap().is_some_and(|batch| rest.starts_with(&batch.records)), "it goes on");
        let mut after = Vec::new();
        let mut reader = storage.read("A", place).unwrap();
        while let Some(batch) = reader.next().unwrap() {
            let mut again = storage.read("A", batch.place).unwrap();
            assert_eq!(again.next().unwrap().unwrap().records, batch.records);
            after.extend(batch.records);
        }
        assert_eq!(after, rest, "from where a reader stopped");
        writer.finish().unwrap();
        assert_eq!(stored(&*storage, "A"), (records.clone(), ChainEnd::Clean));
        let mut reader = storage.read("A", ChainPosition::default()).unwrap();
        let (mut last, mut hashes) = (None, Vec::new());
        while let Some(batch) = reader.skip().unwrap() {
            let mut again = storage.read("A", batch.place).unwrap();
            assert_eq!(again.next().unwrap().unwrap().records.len(), batch.hashes.len());
            last = Some((batch.tip.seq, batch.tip.hash));
            hashes.extend(batch.hashes);
        }
        assert_eq!(last, records.last().map(|record| (record.seq, record.hash)));
        assert_eq!(hashes, records.iter().map(|record| record.hash).collect::<Vec<_>>());
    }
}

#[test]
fn chains_are_apart_and_an_abandoned_one_is_gone() {
    let dir = folder();
    for storage in all(dir.path()) {
        let (a, b) = (some_records("A", 3), some_records("B", 2));
        let mut writers = [storage.create("B"), storage.create("A"), storage.create("C")];
        for (writer, records) in writers.iter_mut().zip([&b, &a, &a]) {
            writer.append(records).unwrap();
            (writer.probe())().unwrap();
        }
        writers[2].abandon();
        assert_eq!(storage.chains().unwrap(), ["A", "B"].map(str::to_owned).into());
        assert_eq!((stored(&*storage, "A").0, stored(&*storage, "B").0), (a, b));
    }
}

#[tokio::test]
async fn a_ledger_works_on_every_storage() {
    let dirs = [folder(), folder()];
    for (i, dir) in dirs.iter().enumerate() {
        let storage = Arc::clone(&all(dir.path())[i]);
        let setup = LedgerSetup { storage: Some(Arc::clone(&storage)), ..SHORT };
        let died = Ledger::open_with(dir.path(), started(), setup.clone()).await.unwrap();
        died.append(event(EventKind::CallIntent)).await.unwrap();
        drop(died);
        writing::wait_for_end(dir.path()).await;
        let ledger = Ledger::open_with(dir.path(), started(), setup).await.unwrap();
        ledger.append(event(EventKind::CallIntent)).await.unwrap();
        assert_eq!(ledger.batch("sink", 10).await.unwrap().len(), 3);
        ledger.close().await;
        let verification =
            verify::verify_in(dir.path(), Arc::clone(&storage), &[], &[], &mut VerifiedSegments::default()).unwrap();
        assert_eq!(verification.verdict, ChainStatus::Good);
        let reader = LedgerReader::open_with(dir.path(), storage).unwrap();
        let kinds: Vec<_> =
            reader.tail(9, &RecordFilter::default()).unwrap().into_iter().map(|r| r.record.kind).collect();
        let expected =
            ["broker.started", "call.intent", "broker.started", "chain.sealed", "call.intent", "broker.stopped"];
        assert_eq!(kinds, expected);
    }
}
