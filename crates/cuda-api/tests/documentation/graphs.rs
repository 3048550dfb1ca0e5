//! CUDA graphs, as the notes on CUDA semantics use them.

use cuda_api::torch::{self, Tensor};
use cuda_api::{CUDAGraph, CaptureMode, GraphOptions, Graphable, Stream};

use super::{Example, File, ones, run};

#[test]
fn graphs() {
    run(GRAPHS);
}

const GRAPHS: &[Example] = &[
    ("torch.cuda.CUDAGraph torch.cuda.graph CUDAGraph.replay torch.cuda.graphs.Tensor", || {
        let input: Tensor = torch::zeros(&[5], torch::float32, "cuda")?;
        let mut graph = CUDAGraph::new();
        let capture = cuda_api::graph(&mut graph, GraphOptions::default())?;
        let output = input.mul(2)?;
        capture.end()?;
        input.copy_(&ones(&[5])?)?;
        graph.replay()?;
        assert_eq!(output.to_vec::<f32>()?, [2.0; 5]);
        Ok(())
    }),
    ("CUDAGraph.capture_begin CUDAGraph.capture_end CUDAGraph.reset CUDAGraph.pool", || {
        let (stream, mut graph) = (Stream::new(None, 0)?, CUDAGraph::new());
        let output = cuda_api::with_stream(&stream, || {
            graph.capture_begin(Some(cuda_api::graph_pool_handle()), CaptureMode::ThreadLocal)?;
            let output = ones(&[2])?.add(1)?;
            graph.capture_end()?;
            Ok(output)
        })?;
        graph.replay()?;
        assert_eq!(output.to_vec::<f32>()?, [2.0; 2]);
        let mut second = CUDAGraph::new();
        let options = GraphOptions { pool: Some(graph.pool()?), ..GraphOptions::default() };
        cuda_api::with_graph(&mut second, options, || output.mul(3))?;
        drop(output);
        Ok(graph.reset()?)
    }),
    ("torch.cuda.graph_pool_handle torch.cuda.graphs._graph_pool_handle", || {
        assert_ne!(cuda_api::graph_pool_handle(), cuda_api::graph_pool_handle());
        Ok(())
    }),
    ("CUDAGraph.enable_debug_mode CUDAGraph.debug_dump", || {
        let (file, mut graph) = (File::new("graph.dot"), CUDAGraph::new());
        graph.enable_debug_mode();
        let _output = cuda_api::with_graph(&mut graph, GraphOptions::default(), || ones(&[2]))?;
        graph.debug_dump(&file.0)?;
        Ok(())
    }),
    ("CUDAGraph.instantiate CUDAGraph.raw_cuda_graph CUDAGraph.raw_cuda_graph_exec", || {
        let mut graph = CUDAGraph::with_keep_graph();
        let output = cuda_api::with_graph(&mut graph, GraphOptions::default(), || ones(&[2]))?;
        graph.instantiate()?;
        assert!(graph.raw_cuda_graph()? != 0 && graph.raw_cuda_graph_exec()? != 0);
        graph.replay()?;
        assert_eq!(output.to_vec::<f32>()?, [1.0; 2]);
        Ok(())
    }),
    ("CUDAGraph.register_generator_state clone_state graphsafe_get_state graphsafe_set_state", || {
        let generator = torch::Generator::new("cuda")?;
        let mut graph = CUDAGraph::new();
        graph.register_generator_state(generator.graph_state()?)?;
        let numbers = cuda_api::with_graph(&mut graph, GraphOptions::default(), || {
            let numbers = torch::zeros(&[4], torch::float32, "cuda")?;
            numbers.normal_(0.0, 1.0, Some(&generator))?;
            Ok(numbers)
        })?;
        graph.replay()?;
        let first = numbers.to_vec::<f32>()?;
        graph.replay()?;
        assert_ne!(numbers.to_vec::<f32>()?, first);
        let (state, copy) = (generator.graphsafe_get_state()?, generator.clone_state()?);
        generator.graphsafe_set_state(&copy)?;
        generator.graphsafe_set_state(&state)
    }),
    ("torch.cuda.make_graphed_callables", || {
        let square = |inputs: &[Tensor]| Ok(vec![inputs[0].square()?]);
        let sample = [ones(&[2])?];
        let mut graphed = cuda_api::make_graphed_callables(&[Graphable::new(&square)], &[&sample], None, None)?;
        let argument = torch::full(&[2], 3.0, torch::float32, "cuda")?;
        assert_eq!(graphed[0].call(&[argument])?[0].to_vec::<f32>()?, [9.0; 2]);
        Ok(())
    }),
];
