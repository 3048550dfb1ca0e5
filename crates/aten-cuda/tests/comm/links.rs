//! What is chosen by how devices are connected: that it is read, and that every way gives the same.

use aten_cuda::comm::{self, LinkClass, Route, Topology};
use aten_cuda::{DType, Result, Tensor};
use c10_core::{CommonAncestor, Device};
use num_complex::Complex64;
use testkit::{Config, Simulation};

fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

fn machine(devices: u32, topology: cuda_sim::Topology) -> testkit::SimulatedRuntime {
    Simulation::new(Config::default().devices(devices).seed(4).topology(topology)).with_nvml().here()
}

#[test]
fn a_topology_says_what_links_are() -> Result<()> {
    let rig = machine(4, cuda_sim::Topology::pairs(100, 1_000, &[(0, 2), (1, 3)]));
    let topology = Topology::of(&[0, 1, 2, 3])?;
    assert_eq!(topology.devices().len(), 4);
    assert_eq!([topology.class(0, 2), topology.class(3, 1), topology.class(2, 2)], [LinkClass::NvLink; 3]);
    assert_ne!(topology.class(0, 1), LinkClass::NvLink);
    assert!(topology.path(0, 2).is_some_and(|path| path.nvlink));
    assert!(topology.path(0, 1).is_some_and(|path| !path.nvlink && path.ancestor.is_some()));
    assert!(topology.link(0, 2).access && topology.link(1, 1).atomics);
    assert!(Topology::of(&[0, 9]).is_err());
    rig.close_clean();
    let rig = machine(3, cuda_sim::Topology::pcie(64, 2_000, 2).failed(0, 1));
    let topology = Topology::of(&["cuda:0", "cuda:1", "cuda:2"])?;
    assert_eq!([topology.class(0, 1), topology.class(0, 2)], [LinkClass::Host, LinkClass::Pcie]);
    assert_eq!(topology.path(0, 1).and_then(|path| path.ancestor), Some(CommonAncestor::SingleSwitch));
    rig.close_clean();
    Ok(())
}

#[test]
fn sums_have_the_same_bits_on_every_way_and_over_all_links() -> Result<()> {
    let topologies = [
        cuda_sim::Topology::nvlink(450, 1_000),
        cuda_sim::Topology::pairs(100, 1_000, &[(0, 3), (1, 2)]),
        cuda_sim::Topology::pcie(64, 2_000, 2).failed(1, 3),
    ];
    for topology in topologies {
        let rig = machine(4, topology);
        for dtype in [DType::F16, DType::F32, DType::I32] {
            // Halves whose sums are rounded at each step.
            let input = |device: i32| {
                let numbers = Tensor::arange(1, 300, 1, Some(DType::F32), Device::cuda(device))?;
                numbers.mul(f64::from(device) * 3.7 + 0.3)?.to_dtype(dtype)
            };
            let inputs = (0..4).map(input).collect::<Result<Vec<Tensor>>>()?;
            let mut sums = Vec::new();
            for route in [Route::Direct, Route::Chain, Route::Tree, Route::Auto] {
                comm::set_route(route);
                sums.push(comm::reduce_add(&refs(&inputs), 2)?.to_bytes()?);
                for copy in comm::broadcast(&inputs[2], &[3, 2, 0, 1])? {
                    assert_eq!(copy.to_bytes()?, inputs[2].to_bytes()?, "{dtype} {route:?}");
                }
            }
            comm::set_route(Route::Auto);
            assert!(sums.iter().all(|sum| *sum == sums[0]), "{dtype}");
        }
        rig.close_clean();
    }
    Ok(())
}

/// Bytes that go along a chain at once.
const PART: usize = 16 << 20;

/// Sums that go along a chain of these devices in several parts, of which the last is shorter. Elements have 16 bytes, so that
/// few of them make a part, and their sums depend on the order.
fn sum_in_parts(devices: u32, elements: usize, with_peers: bool) -> Result<()> {
    let topology = cuda_sim::Topology::nvlink(450, 1_000);
    let config = Config::default().devices(devices).seed(4).topology(topology).peer_access(with_peers);
    let rig = Simulation::new(config).with_nvml().here();
    let numbers = |device: u32| -> Vec<Complex64> {
        let number = |at: usize| f64::from(u32::try_from(at % 1013).unwrap_or(0)) * 0.37 + f64::from(device) * 3.1;
        (0..elements).map(|at| Complex64::new(number(at), -number(at + 1))).collect()
    };
    let sizes = [i64::try_from(elements).unwrap_or(0)];
    let on_device =
        |device: u32| Tensor::from_slice(&numbers(device), &sizes)?.to_device(format!("cuda:{device}").as_str());
    let inputs = (0..devices).map(on_device).collect::<Result<Vec<Tensor>>>()?;
    let destination = devices / 2;
    // First that of the destination, then the others one by one.
    let mut expected = numbers(destination);
    for device in (0..devices).filter(|device| *device != destination) {
        expected.iter_mut().zip(numbers(device)).for_each(|(sum, number)| *sum += number);
    }
    let copies = || -> u64 {
        let calls = rig.machine().calls();
        calls.iter().filter(|(name, ..)| name.starts_with("cuMemcpy")).map(|(.., count)| count).sum()
    };
    let before = copies();
    comm::set_route(Route::Chain);
    let sum = comm::reduce_add(&refs(&inputs), i32::try_from(destination).unwrap_or(0))?;
    comm::set_route(Route::Auto);
    let parts = (elements * size_of::<Complex64>()).div_ceil(PART) as u64;
    if with_peers {
        assert_eq!(copies() - before, parts * u64::from(devices), "each part goes from device to device, and home");
    }
    assert!(parts >= 2);
    assert!(sum.to_vec::<Complex64>()? == expected, "{devices} devices, {elements} elements, peers: {with_peers}");
    drop((inputs, sum));
    rig.close_clean();
    Ok(())
}

#[test]
fn sums_of_several_parts_are_those_of_plain_loops() -> Result<()> {
    let part = PART / size_of::<Complex64>();
    for with_peers in [true, false] {
        sum_in_parts(3, 2 * part + 12_345, with_peers)?;
        sum_in_parts(5, part + 4096, with_peers)?;
    }
    sum_in_parts(8, part + 1, true)
}
