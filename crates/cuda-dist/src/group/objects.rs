//! Objects: rows of bytes of any length, where torch's collectives of objects have pickles. What the bytes mean, and how a
//! value becomes bytes, is the caller's.
//!
//! They go as tensors of bytes: the lengths first, and then the bytes, filled up to the longest.
//!
//! Invariant: a length that another rank says is not believed above [`OBJECT_BYTES_MAX`].

use aten_cuda::{DType, Tensor};

use super::{ProcessGroup, Work};
use crate::error::{Error, Result};

/// The longest object, in bytes: 1 GiB.
const OBJECT_BYTES_MAX: usize = 1 << 30;

impl ProcessGroup {
    /// Every rank gets the objects of rank `root` in place of its own, of which it has as many. The host waits.
    ///
    /// ```
    /// # testkit::make_default(testkit::Config::default()).unwrap();
    /// use std::sync::Arc;
    ///
    /// use cuda_dist::{HashStore, InitOptions, ProcessGroup};
    ///
    /// let store = HashStore::new();
    /// let rank = |rank: usize, store: HashStore| {
    ///     let group = ProcessGroup::with_store(Arc::new(store), rank, 2, &InitOptions::default())?;
    ///     let mut objects = if rank == 0 { vec![b"name".to_vec(), vec![]] } else { vec![vec![]; 2] };
    ///     group.broadcast_object_list(&mut objects, 0)?;
    ///     Ok::<_, cuda_dist::Error>(objects)
    /// };
    /// let other = std::thread::spawn({ let store = store.clone(); move || rank(1, store) });
    /// rank(0, store)?;
    /// assert_eq!(other.join().unwrap()?, [b"name".to_vec(), vec![]]);
    /// # Ok::<(), cuda_dist::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is no such rank, ranks have other numbers of objects, an object is too long, or a collective failed.
    pub fn broadcast_object_list(&self, objects: &mut [Vec<u8>], root: usize) -> Result<()> {
        self.check_rank(root)?;
        let lengths = self.lengths(objects)?;
        Self::done(&self.broadcast(&lengths, root)?)?;
        let lengths = read_lengths(&lengths)?;
        let whole = if self.rank() == root { objects.concat() } else { zeros(lengths.iter().sum())? };
        let bytes = self.tensor_of(&whole, DType::U8)?;
        Self::done(&self.broadcast(&bytes, root)?)?;
        let mut bytes = bytes.to_bytes()?;
        for (object, length) in objects.iter_mut().zip(lengths) {
            let rest = bytes.split_off(length);
            *object = std::mem::replace(&mut bytes, rest);
        }
        Ok(())
    }

    /// Every rank gets the objects of all, in the order of the ranks. The host waits.
    ///
    /// # Errors
    /// An object is too long, or a collective failed.
    pub fn all_gather_object(&self, object: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (lengths, own) = self.padded(object)?;
        let row = own.numel();
        let whole = Tensor::zeros(&[row * self.ranks()], DType::U8, own.device())?;
        Self::done(&self.all_gather_into_tensor(&whole, &own)?)?;
        let bytes = whole.to_bytes()?;
        let row = usize::try_from(row).unwrap_or(0);
        Ok(lengths.iter().enumerate().map(|(rank, length)| bytes[rank * row..][..*length].to_vec()).collect())
    }

    /// Rank `root` gets the objects of all, in the order of the ranks, the others nothing. The host waits.
    ///
    /// # Errors
    /// There is no such rank, an object is too long, or a collective failed.
    pub fn gather_object(&self, object: &[u8], root: usize) -> Result<Option<Vec<Vec<u8>>>> {
        self.check_rank(root)?;
        let (lengths, own) = self.padded(object)?;
        if self.rank() != root {
            Self::done(&self.gather(&own, None, root)?)?;
            return Ok(None);
        }
        let empty = |_| Ok(Tensor::zeros(own.sizes(), DType::U8, own.device())?);
        let outputs = (0..self.size()).map(empty).collect::<Result<Vec<_>>>()?;
        Self::done(&self.gather(&own, Some(&outputs), root)?)?;
        let read =
            |(output, length): (&Tensor, &usize)| Ok(output.narrow(0, 0, length.cast_signed() as i64)?.to_bytes()?);
        outputs.iter().zip(&lengths).map(read).collect::<Result<_>>().map(Some)
    }

    /// Every rank gets the object that rank `root` has for it; the others have none to give. The host waits.
    ///
    /// # Errors
    /// There is no such rank, the root has not one object for each rank, another rank has objects, an object is too long, or
    /// a collective failed.
    pub fn scatter_object_list(&self, objects: Option<&[Vec<u8>]>, root: usize) -> Result<Vec<u8>> {
        self.check_rank(root)?;
        let count = objects.map(<[_]>::len);
        let wanted = (self.rank() == root).then_some(self.size());
        if count != wanted {
            let problem = match (count, wanted) {
                (Some(count), Some(wanted)) => format!("{count} objects for {wanted} ranks: each has one"),
                (None, _) => format!("rank {root} is the root, and has no objects"),
                (Some(_), None) => format!("rank {} has objects, and the root is rank {root}", self.rank()),
            };
            return Err(Error::Argument(problem));
        }
        let none = vec![Vec::new(); self.size()];
        let objects = objects.unwrap_or(&none);
        let lengths = self.lengths(objects)?;
        Self::done(&self.broadcast(&lengths, root)?)?;
        let lengths = read_lengths(&lengths)?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let fill = |object: &Vec<u8>| self.tensor_of(&filled(object, longest), DType::U8);
        let inputs = (self.rank() == root).then(|| objects.iter().map(fill).collect::<Result<Vec<_>>>()).transpose()?;
        let own = self.tensor_of(&zeros(longest)?, DType::U8)?;
        Self::done(&self.scatter(&own, inputs.as_deref(), root)?)?;
        let mut bytes = own.to_bytes()?;
        bytes.truncate(lengths[self.rank()]);
        Ok(bytes)
    }

    /// Waits on the host, so that nothing is read of what failed.
    fn done(work: &Work) -> Result<()> {
        work.wait_on_host()
    }

    fn ranks(&self) -> i64 {
        self.size().cast_signed() as i64
    }

    fn lengths(&self, objects: &[Vec<u8>]) -> Result<Tensor> {
        if let Some(object) = objects.iter().find(|object| object.len() > OBJECT_BYTES_MAX) {
            let problem = format!("an object of {} bytes, and {OBJECT_BYTES_MAX} are the most", object.len());
            return Err(Error::Argument(problem));
        }
        let bytes: Vec<u8> = objects.iter().flat_map(|object| (object.len() as u64).to_ne_bytes()).collect();
        self.tensor_of(&bytes, DType::I64)
    }

    /// The lengths of the objects of all, and this rank's own, as long as the longest.
    fn padded(&self, object: &[u8]) -> Result<(Vec<usize>, Tensor)> {
        let own = self.lengths(&[object.to_vec()])?;
        let all = Tensor::zeros(&[self.ranks()], DType::I64, own.device())?;
        Self::done(&self.all_gather_into_tensor(&all, &own)?)?;
        let lengths = read_lengths(&all)?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let own = self.tensor_of(&filled(object, longest), DType::U8)?;
        Ok((lengths, own))
    }
}

/// Allocates zeros; other ranks announce the length.
fn zeros(length: usize) -> Result<Vec<u8>> {
    Ok(c10_core::host_memory::zeroed(length).map_err(aten_cuda::Error::from)?)
}

fn filled(object: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = object.to_vec();
    bytes.resize(length.max(object.len()), 0);
    bytes
}

/// Lengths that came from other ranks.
fn read_lengths(lengths: &Tensor) -> Result<Vec<usize>> {
    let read = |length: i64| {
        let read = usize::try_from(length).ok().filter(|length| *length <= OBJECT_BYTES_MAX);
        let problem = || format!("is {length}, and an object has from 0 to {OBJECT_BYTES_MAX} bytes");
        read.ok_or_else(|| Error::Value { key: "an object's length".to_owned(), problem: problem() })
    };
    lengths.to_vec::<i64>()?.into_iter().map(read).collect()
}
