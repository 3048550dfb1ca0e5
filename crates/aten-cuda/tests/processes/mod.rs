//! Tensors between processes. This program is its own second process: it starts itself with a variable set.
//!
//! `SHARING_DRIVER=real RUST_TEST_THREADS=1` runs them on the device of the machine (`--test interop processes`).

use aten_cuda::{Complex64, DType, SharedTensor, Tensor};
use c10_core::{Error, IpcError, Runtime, RuntimeGuard};
use testkit::process::{Other, role, say, say_bytes, told};

/// The runtime of a process: on the simulated machine of the environment, which works on while nobody calls, or the
/// default one of a real machine.
fn process() -> Option<RuntimeGuard> {
    if std::env::var("SHARING_DRIVER").as_deref() == Ok("real") {
        return None;
    }
    Some(Runtime::new(cuda_sim::driver().expect("a simulated driver")).bind())
}

fn start(role: &str) -> Other {
    Other::start("processes::the_other_process", role, &[])
}

fn receive(bytes: &[u8]) -> Tensor {
    Tensor::from_shared(&SharedTensor::from_bytes(bytes).expect("a tensor")).expect("it opens")
}

/// All that is to be seen of a tensor.
fn description(tensor: &Tensor) -> String {
    let values = tensor.cpu().and_then(|tensor| tensor.contiguous()?.to_bytes()).expect("values");
    let (sizes, strides, offset) = (tensor.sizes(), tensor.strides(), tensor.storage_offset());
    let kind = (tensor.is_conj(), tensor.is_neg(), tensor.is_parameter());
    format!("{} {sizes:?} {strides:?} {offset} {kind:?} {values:?}", tensor.dtype())
}

/// Bytes of the process, which on a real machine are those of all tests.
fn allocated() -> u64 {
    Runtime::with_current(|runtime| {
        runtime.ipc().collect()?;
        Ok::<_, Error>(runtime.memory().stats(0)?["allocated_bytes.all.current"])
    })
    .map(|bytes| u64::try_from(bytes).expect("not negative"))
    .expect("statistics")
}

#[test]
fn the_other_process() {
    match role().as_deref() {
        Some("reader") => reader(),
        Some("holder") => {
            let _runtime = process();
            let held = receive(&told());
            held.fill_(5).expect("it runs");
            aten_cuda::synchronize(None).expect("it runs");
            say("filled");
            told();
        }
        Some("sender") => {
            let _runtime = process();
            let tensor = Tensor::arange(0, 1000, 1, Some(DType::I64), "cuda").expect("memory");
            say_bytes(&tensor.narrow(0, 10, 5).and_then(|part| part.share()).expect("shared").to_bytes());
            told();
        }
        _ => {}
    }
}

/// Describes what it is sent until there is no more, tells which tensors are views of one storage, adds to the first one, and
/// sends it back.
fn reader() {
    let _runtime = process();
    let before = allocated();
    let mut tensors: Vec<Tensor> = Vec::new();
    loop {
        let bytes = told();
        if bytes.is_empty() {
            break;
        }
        let tensor = receive(&bytes);
        let storage = tensors.iter().position(|other| other.storage().is_same(tensor.storage()));
        say(&format!("{} {storage:?}", description(&tensor)));
        tensors.push(tensor);
    }
    tensors[0].add_(1).expect("it runs");
    say_bytes(&tensors[0].share().expect("shared on").to_bytes());
    told();
    drop(tensors);
    aten_cuda::synchronize(None).expect("it runs");
    assert_eq!(allocated(), before);
    say("dropped");
    told();
}

#[test]
fn views_of_every_dtype_cross_over() {
    let _runtime = process();
    let before = allocated();
    let mut other = start("reader");
    let first = Tensor::arange(0, 24, 1, Some(DType::F32), "cuda").expect("memory").view(&[2, 3, 4]).expect("a view");
    let second = first.permute(&[2, 0, 1]).and_then(|view| view.narrow(2, 1, 2)).expect("a view");
    let conjugate = Tensor::from_slice(&[Complex64::new(1.0, 2.0), Complex64::new(3.0, -4.0)], &[2]).expect("a tensor");
    let conjugate = conjugate.cuda(None).expect("memory").conj();
    let mut tensors = vec![first.clone(), second, conjugate.imag().expect("a view"), conjugate];
    tensors.push(first.as_parameter());
    tensors.push(Tensor::empty(&[0, 3], DType::I16, "cuda").expect("no memory"));
    tensors.push(Tensor::full(&[], 7, DType::I32, "cuda").expect("memory").expand(&[2, 2]).expect("a view"));
    for dtype in DType::ALL {
        tensors
            .push(Tensor::arange(0, 8, 1, Some(DType::F32), "cuda").and_then(|t| t.to_dtype(dtype)).expect("memory"));
    }
    for (at, tensor) in tensors.iter().enumerate() {
        other.tell(&tensor.share().expect("shared").to_bytes());
        let storage = tensors[..at]
            .iter()
            .position(|other| tensor.storage().nbytes() > 0 && other.storage().is_same(tensor.storage()));
        assert_eq!(other.hear(), format!("{} {storage:?}", description(tensor)));
    }
    other.tell(&[]);
    let back = receive(&other.hear_bytes());
    assert!(back.storage().is_same(first.storage()), "its own memory comes back");
    assert_eq!(back.to_vec::<f32>().expect("values")[..3], [1.0, 2.0, 3.0], "what was written there");
    drop((tensors, first, back));
    assert!(allocated() > before, "the other process has them");
    other.tell(&[1]);
    assert_eq!(other.hear(), "dropped");
    assert_eq!(allocated(), before);
    other.tell(&[1]);
    other.end();
}

#[test]
fn processes_that_are_killed_leave_nothing() {
    let _runtime = process();
    let before = allocated();
    let tensor = Tensor::zeros(&[1000], DType::F32, "cuda").expect("memory");
    let mut holder = start("holder");
    holder.tell(&tensor.share().expect("shared").to_bytes());
    assert_eq!(holder.hear(), "filled");
    assert_eq!(tensor.to_vec::<f32>().expect("values"), [5.0; 1000]);
    drop(tensor);
    assert!(allocated() > before);
    holder.kill();
    assert_eq!(allocated(), before);

    let mut sender = start("sender");
    let bytes = sender.hear_bytes();
    let received = receive(&bytes);
    aten_cuda::synchronize(None).expect("it runs");
    sender.kill();
    received.add_(1).expect("it runs");
    assert_eq!(received.to_vec::<i64>().expect("values"), [11, 12, 13, 14, 15]);
    let again = Tensor::from_shared(&SharedTensor::from_bytes(&bytes).expect("a tensor")).unwrap_err();
    assert_eq!(again.runtime(), Some(&Error::Ipc(IpcError::Released)));
    drop(received);
    aten_cuda::synchronize(None).expect("it runs");
    assert_eq!(allocated(), before);
}

#[test]
fn other_bytes_are_refused() {
    let _runtime = process();
    let tensor = Tensor::arange(0, 6, 1, Some(DType::F32), "cuda").and_then(|t| t.view(&[2, 3])).expect("memory");
    let bytes = tensor.share().expect("shared").to_bytes();
    let refused = |bytes: &[u8]| match SharedTensor::from_bytes(bytes) {
        Err(error) => error.runtime() == Some(&Error::Ipc(IpcError::InvalidBytes)),
        Ok(_) => false,
    };
    assert!((0..bytes.len()).all(|end| refused(&bytes[..end])));
    // Magic, version, flags, length and name of the dtype, dimensions, a size, a stride, the offset.
    let name = "torch.float32".len();
    for at in [0, 3, 4, 5, 6, 6 + name, 7 + name, 7 + name + 16, 7 + name + 32] {
        let mut wrong = bytes.clone();
        wrong[at] = wrong[at].wrapping_add(if at == 4 { 1 } else { 64 });
        assert!(refused(&wrong), "byte {at}");
    }
    // A description of less memory than the view needs is refused before anything is opened.
    let shared = SharedTensor::from_bytes(&bytes).expect("a tensor");
    assert_eq!((shared.sizes(), shared.storage_offset(), shared.memory().len()), (&[2, 3][..], 0, 24));
    let host = Tensor::zeros(&[2], DType::F32, "cpu").expect("memory").share().unwrap_err();
    assert_eq!(host.to_string(), "_share_cuda_: only available on CUDA");
    assert!(tensor.as_strided(&[1; 65], &[1; 65], Some(0)).and_then(|view| view.share()).is_err());
}
