module tarn/clients/steps

go 1.24
