{
    // Every example has the whole process for itself: it runs on a simulated machine of its own.
    cuda_sim::Machine::new(cuda_sim::Config::default().seed(1)).make_default();
    // SAFETY: the simulated driver's functions behave as the C functions of their names.
    let driver = unsafe { cuda_sys::Driver::from_functions(cuda_sim::functions()) }.expect("the simulated driver");
    cuda_api::init_with(cuda_api::Runtime::new(driver)).expect("the first runtime of the process");
}
